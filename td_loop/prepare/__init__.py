"""Stage 3: rows from replays, their inputs and targets under V_snap. Also stage 2, the outcome rows.

The front door is `td_loop.prepare.run`; `config` says what it takes, `branch_data` and `gather` what it writes.
"""
