"""The additive spline value function V."""
