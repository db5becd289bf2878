// The OpenTelemetry Collector with no more parts than the benchmark's peers need: OTLP in, OTTL, a queue on disk, OTLP out.
package main

import (
	"fmt"
	"os"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/transformprocessor"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

func factories() (otelcol.Factories, error) {
	otlpIn, otlpOut := otlpreceiver.NewFactory(), otlpexporter.NewFactory()
	ottl, storage := transformprocessor.NewFactory(), filestorage.NewFactory()
	return otelcol.Factories{
		Receivers:  map[component.Type]receiver.Factory{otlpIn.Type(): otlpIn},
		Processors: map[component.Type]processor.Factory{ottl.Type(): ottl},
		Exporters:  map[component.Type]exporter.Factory{otlpOut.Type(): otlpOut},
		Extensions: map[component.Type]extension.Factory{storage.Type(): storage},
		Telemetry:  otelconftelemetry.NewFactory(),
	}, nil
}

func main() {
	settings := otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "otelcol", Description: "a peer of the benchmark", Version: "0.161.0"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{
			ResolverSettings: confmap.ResolverSettings{ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()}, DefaultScheme: "file"},
		},
	}
	if err := otelcol.NewCommand(settings).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
