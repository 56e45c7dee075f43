"""Games between contestants, what they prove, and who is to be deployed.

The front doors are `td_loop.arena.tournament` (play) and `td_loop.arena.standings` (judge); `contestants` says who
can play. `match` puts both together for two contestants.
"""
