"""Names that the server, the metrics, the routers and the canary's controller share.

A *subset* is where a request goes. Rewards of answers that the fallback gave are counted apart: neither policy has
earned them.

Counters of Prometheus may only rise, and `rate()` takes a fall for a restart. A sum of rewards can fall, so it is
kept as two counters, of what rewards above and below zero add up to; their difference is the sum. The plain `_sum`
of the two subsets is there too, as a gauge, for rules that expect it.
"""

from __future__ import annotations

from typing import Literal

Subset = Literal["stable", "canary"]
SUBSETS: tuple[Subset, ...] = ("stable", "canary")

# Rewards, with the subset in the name: rl_reward_canary_sum, rl_reward_canary_count, ...
REWARD = "rl_reward_{subset}"
"""With `_sum`, a gauge, and the counters `_count`, `_positive_sum`, `_negative_sum` (of absolute values) and
`_squares_sum`."""

# Everything below has the label "subset".
REWARDS_OF_FALLBACKS = "rl_reward_fallback_total"
"""Counter: rewards reported for answers of the fallback."""
REQUESTS = "rl_requests_total"
"""Counter: decisions asked for."""
REWARDS_UNCREDITED = "rl_reward_uncredited_total"
"""Counter, label "reason": rewards that no policy is credited with: `replaced` (the artefact that decided does not
serve as this subset any more), `switched` (the episode had decisions of both subsets)."""
UNCREDITED_REASONS = ("replaced", "switched")
FALLBACKS = "rl_fallbacks_total"
"""Counter, label "reason": see FALLBACK_REASONS."""
FALLBACK_REASONS = ("timeout", "error", "output", "illegal", "busy")
"""Why the rule answered: no answer in time; the runner raised; the wrong shape or not finite; not legal; all
threads of the policy hang."""
ERRORS = "rl_errors_total"
"""Counter: requests answered with a 5xx status, or by nobody, because the process that had them died."""
IN_FLIGHT = "rl_requests_in_flight"
"""Gauge: decisions that are being made, those of a canary in shadow among them."""
EPISODES = "rl_episodes_total"
"""Counter: episodes that were assigned to a subset (the router's draw, for the test of sample ratios)."""
DECISION_SECONDS = "rl_decision_seconds"
"""Histogram: from the request read to the answer written. In shadow: from the question to the canary's answer."""
LATENCY_BUCKETS = (
    *(0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.010, 0.012, 0.015, 0.020, 0.025, 0.030),
    *(0.040, 0.050, 0.060, 0.080, 0.100, 0.200, 0.500, 1.0),
)
"""Upper bounds, seconds; 10 and 15 ms, which people set limits at, are among them."""
SHADOW_AGREEING = "rl_shadow_agreeing_total"
"""Counter, subset canary: answers of a canary in shadow that were those of the stable policy. Requests, fallbacks,
seconds and entropy of a canary in shadow count as the canary's own; episodes and rewards it has none."""

ENTROPY = "rl_action_entropy"
"""Summary-like counters `_sum` and `_count`: marginal entropy of a decision in nats, mean over deciding slots."""
CHOICE_ENTROPY = "rl_choice_entropy"
"""Gauge: entropy in nats of what was chosen over the recent window; near 0, it is the same in all states."""
DRIFT = "rl_feature_drift"
"""Gauge, label "feature": population stability index against the artefact's reference, over the recent window."""
NONDETERMINISM = "rl_replayed_states_differing_total"
"""Counter: identical states that were answered differently by one policy: leaked exploration noise."""
REPLAYED = "rl_replayed_states_total"
"""Counter: states asked for again, so that answers could be compared."""
POLICY_INFO = "rl_policy_info"
"""Gauge 1, label "sha256": the artefact that answers for the subset."""
WEIGHT = "rl_traffic_weight"
"""Gauge: percent of new episodes that go to the subset."""

# Of a server process, without a subset.
CPU_SECONDS = "rl_engine_cpu_seconds_total"
CONTEXT_SWITCHES = "rl_engine_context_switches_total"
"""Counter, label "kind": voluntary, involuntary."""
RUN_QUEUE_SECONDS = "rl_engine_run_queue_seconds_total"
"""Counter: time that runnable threads waited for a core (Linux, /proc/self/schedstat)."""
THROTTLED_SECONDS = "rl_engine_throttled_seconds_total"
"""Counter: time that the control group was throttled."""

# How traffic is counted.
FULL_BP = 10_000
"""All of it, in basis points: hundredths of a percent."""

# Where in its folder a server says how it is reached.
SERVER_FILE = "server.json"
"""Its URL."""
TOKEN_FILE = "token"
"""What lets one change things."""

# The HTTP interface.
BINARY = "application/octet-stream"
"""Content type of bodies that a game has packed, and of moves as `moves.pack_moves` makes them."""
FALLBACK_HEADER = "x-rl-fallback"
"""Of a binary answer: why the rule gave it; empty if the policy did."""
EPISODE_HEADER = "x-episode-id"
SUBSET_HEADER = "x-rl-subset"
DECISION_HEADER = "x-decision-id"
DECISION_PREFIX = "{subset}."
"""How the id of a decision begins: a proxy that sees it in the header keeps an episode where it was."""
