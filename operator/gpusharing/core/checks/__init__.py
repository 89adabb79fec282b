"""One file = one family of checks, for lint, plan and conditions."""
