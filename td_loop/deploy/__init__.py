"""A policy that answers requests: admission, server, routers, and a canary that rolls itself back."""
