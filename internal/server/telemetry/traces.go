package telemetry

import (
	"context"
	"net/http"
	"os"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/bailey-sandbox/bailey"
)

// Traces sends traces to where the environment says (OTEL_EXPORTER_OTLP_ENDPOINT
// and the other variables of OTLP over HTTP), or does nothing where it says nothing.
// stop sends what is left.
func Traces(ctx context.Context, version string) (stop func(context.Context) error, on bool, err error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return func(context.Context) error { return nil }, false, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, false, bailey.Errorf(bailey.CodeUsage, "send traces", "see OTEL_EXPORTER_OTLP_ENDPOINT", "%w", err)
	}
	res, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "baileyd"), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, false, bailey.Errorf(bailey.CodeUsage, "send traces", "see OTEL_RESOURCE_ATTRIBUTES", "%w", err)
	}
	p := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(res))
	otel.SetTracerProvider(p)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return p.Shutdown, true, nil
}

// Traced gives a handler whose requests are spans, named by their operation.
func Traced(next http.Handler, operation func(*http.Request) string) http.Handler {
	return otelhttp.NewHandler(next, "request", otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
		if p := operation(r); p != "" {
			return p
		}
		return "none"
	}))
}
