"""Metrics: the state and the newest readings in the formats of Prometheus and OpenMetrics."""
