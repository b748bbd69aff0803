"""What reproduces publications: baselines, experiments, the demo. Nothing else imports it."""
