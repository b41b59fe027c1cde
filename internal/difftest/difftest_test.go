package difftest

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"
)

var (
	update = flag.Bool("update", false, "write docs/compatibility.md from what was measured")
	only   = flag.String("area", "", "run one area only")
	show   = flag.Bool("show", false, "print workerd's answers and compare nothing")
)

func TestDifferential(t *testing.T) {
	known := readDifferences(t)
	report := &report{known: known}
	for _, w := range bundles(t) {
		reference := startWorkerd(t, w)
		if *show {
			printAnswers(t, reference)
			continue
		}
		compare(t, reference, startCelld(t, w), report)
	}
	if *show || *only != "" {
		return
	}
	for key := range known {
		if !report.differed[key] {
			t.Errorf("%s is listed in differences.txt but there is no difference any more: remove the line", key)
		}
	}
	if *update {
		report.write(t, "../../docs/compatibility.md")
	}
}

// The same answers come from a node that owns none of the cells: it reaches
// them through the tunnel.
func TestDifferentialAcrossNodes(t *testing.T) {
	known := readDifferences(t)
	for _, w := range bundles(t) {
		reference := startWorkerd(t, w)
		owner, other, bucket := startFleet(t, w)
		cells := []string{"c", "m", "g", "n", "named", "bt", "det", "wt", "f", "rpc"}
		for _, c := range casesOf(t, reference) {
			cells = append(cells, c.key())
		}
		for _, c := range cells {
			ready(t, owner)
			if a, err := owner.ask("GET", "/warm/"+url.PathEscape(c), ""); err != nil || a.Body != "warm" {
				t.Fatalf("warm %s: %v %v", c, a, err)
			}
		}
		ready(t, other)
		if out, err := exec.Command(celldBinary(t), "cell", "list", "--limit", "1000", "--bucket", bucket).Output(); err != nil || strings.Count(string(out), "  a.") != len(cells) {
			t.Fatalf("node a should own all %d cells: %v\n%s", len(cells), err, out)
		}
		compare(t, reference, other, &report{known: known})
		for path, said := range conversations {
			if want, got := converse(t, reference, path, said), converse(t, other, path, said); got != want {
				t.Errorf("%s\ncelld\n%s\nworkerd\n%s", path, got, want)
			}
		}
	}
}

// ready waits until a node has adopted the deployment.
func ready(t *testing.T, e engine) {
	for t.Context().Err() == nil {
		if a, err := e.ask("GET", "/-/", ""); err == nil && a.Status == 200 {
			return
		}
	}
}

// bundles makes one worker for each set of flags.
func bundles(t *testing.T) []worker {
	files, err := filepath.Glob("testdata/fixtures/*.js")
	if err != nil || len(files) == 0 {
		t.Fatal("no fixtures", err)
	}
	byFlags := map[string][]string{}
	for _, f := range files {
		if area := areaOf(f); *only == "" || area == *only || area == "alarm" {
			flags := flagsOf(t, f)
			byFlags[flags] = append(byFlags[flags], f)
		}
	}
	var out []worker
	for flags, files := range byFlags {
		w := worker{bundle: bundle(t, files)}
		if flags != "" {
			w.flags = strings.Split(flags, ",")
		}
		for _, f := range files {
			w.areas = append(w.areas, areaOf(f))
		}
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b worker) int { return strings.Compare(strings.Join(a.flags, ","), strings.Join(b.flags, ",")) })
	return out
}

func areaOf(file string) string { return strings.TrimSuffix(filepath.Base(file), ".js") }

// flagsOf reads the compatibility flags from a fixture's first line.
func flagsOf(t *testing.T, file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(b), "\n")
	list, ok := strings.CutPrefix(first, "// flags:")
	if !ok {
		return ""
	}
	return strings.ReplaceAll(strings.TrimSpace(list), " ", "")
}

// bundle joins the harness and its fixtures into one module.
func bundle(t *testing.T, files []string) []byte {
	var index strings.Builder
	var names []string
	for i, f := range files {
		abs, err := filepath.Abs(f)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&index, "import * as f%d from %q;\n", i, abs)
		names = append(names, fmt.Sprintf("%q: f%d", areaOf(f), i))
	}
	fmt.Fprintf(&index, "export const fixtures = { %s };\n", strings.Join(names, ", "))
	r := api.Build(api.BuildOptions{
		EntryPoints: []string{"testdata/harness.js"}, Bundle: true, Format: api.FormatESModule, External: []string{"cloudflare:*", "node:*"},
		Plugins: []api.Plugin{{Name: "fixtures", Setup: func(b api.PluginBuild) {
			b.OnResolve(api.OnResolveOptions{Filter: "^fixtures$"}, func(api.OnResolveArgs) (api.OnResolveResult, error) {
				return api.OnResolveResult{Path: "fixtures", Namespace: "fixtures"}, nil
			})
			b.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: "fixtures"}, func(api.OnLoadArgs) (api.OnLoadResult, error) {
				s := index.String()
				return api.OnLoadResult{Contents: &s, ResolveDir: "testdata"}, nil
			})
		}}},
	})
	if len(r.Errors) > 0 {
		t.Fatal(api.FormatMessages(r.Errors, api.FormatMessagesOptions{}))
	}
	return r.OutputFiles[0].Contents
}

// compare asks both engines the same, case by case, in the same order.
func compare(t *testing.T, reference, ours engine, rep *report) {
	for _, c := range casesOf(t, reference) {
		want, err := reference.ask("POST", "/"+c.area+"/"+c.name, "request body")
		if err != nil {
			t.Errorf("%s: workerd: %v", c.key(), err)
			continue
		}
		got, err := ours.ask("POST", "/"+c.area+"/"+c.name, "request body")
		diff := ""
		switch {
		case err != nil:
			diff = "no answer: " + err.Error()
		case text(got) != text(want):
			diff = fmt.Sprintf("celld   %s\n\tworkerd %s", text(got), text(want))
		}
		rep.add(c, diff)
		if reason, listed := rep.known[c.key()]; diff != "" && !listed {
			t.Errorf("%s\n\t%s", c.key(), diff)
		} else if diff != "" {
			t.Logf("%s differs, as listed: %s", c.key(), reason)
		}
	}
}

type oneCase struct{ area, name string }

func (c oneCase) key() string { return c.area + "/" + c.name }

// casesOf asks an engine which cases its bundle holds, in the order they stand there.
func casesOf(t *testing.T, e engine) []oneCase {
	a, err := e.ask("GET", "/-/", "")
	if err != nil {
		t.Fatalf("%s does not answer: %v", e.name, err)
	}
	var areas map[string][]string
	if err := json.Unmarshal([]byte(a.Body), &areas); err != nil {
		t.Fatalf("%s answered %d %s", e.name, a.Status, a.Body)
	}
	var out []oneCase
	for area, names := range areas {
		if *only != "" && area != *only {
			continue
		}
		for _, n := range names {
			out = append(out, oneCase{area, n})
		}
	}
	slices.SortStableFunc(out, func(a, b oneCase) int { return strings.Compare(a.area, b.area) })
	return out
}

func text(a answer) string {
	b, _ := json.Marshal(a)
	return string(b)
}

func printAnswers(t *testing.T, e engine) {
	for _, c := range casesOf(t, e) {
		a, err := e.ask("POST", "/"+c.area+"/"+c.name, "request body")
		t.Log(c.key(), text(a), err)
	}
}
