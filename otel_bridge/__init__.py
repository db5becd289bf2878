"""otel-bridge: ExecuTorch delegate events as OpenTelemetry spans."""

__version__ = "0.1.0"
