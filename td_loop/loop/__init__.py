"""The driver: run directory, manifest, plan, resume, retention, promote and revert.

`driver.drive` runs a `config.RunConfig`; `manifest` is what others read of a run. The room talks to the stages
through files, arguments and exit codes alone, and imports none of them.
"""
