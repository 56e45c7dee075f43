"""How much traffic goes to the canary: one contract, three back ends (the server itself, Envoy, Istio)."""
