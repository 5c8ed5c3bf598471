"""The Grafana dashboards of a fleet. `make dashboards` writes them to deploy/grafana."""
