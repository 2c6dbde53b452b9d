// Package telemetry is what an operator sees of the daemon: metrics as Prometheus
// reads them, and traces by OpenTelemetry where OTEL_EXPORTER_OTLP_ENDPOINT is set.
//
// No label or attribute has a value that a sandbox or an unknown caller chooses, so
// that their number is bounded. It touches nothing but the network address that the
// operator has named for traces.
package telemetry
