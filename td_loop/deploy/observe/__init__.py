"""What a server notices while it answers: cheap accumulators of bounded memory, whose figures add up.

None of them knows of HTTP or metrics. Each may be used by several threads at once.
"""
