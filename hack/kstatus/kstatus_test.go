// Package kstatus compares what kstatus, the library behind Flux's `wait`, concludes from recorded objects with what
// the name of each file claims: <name>.<Verdict>.yaml.
package kstatus

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"
)

func TestVerdicts(t *testing.T) {
	folder := os.Getenv("KSTATUS_OBJECTS")
	if folder == "" {
		folder = "../../tests/vectors/kstatus"
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no objects in %s (%v)", folder, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			want := strings.TrimPrefix(filepath.Ext(name), ".")
			got, err := status.Compute(read(t, file))
			if err != nil {
				t.Fatal(err)
			}
			if got.Status.String() != want {
				t.Errorf("kstatus says %s (%s), the file name says %s", got.Status, got.Message, want)
			}
		})
	}
}

func read(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON(content)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(asJSON); err != nil {
		t.Fatal(err)
	}
	return object
}
