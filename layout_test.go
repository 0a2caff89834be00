// SPDX-License-Identifier: BSD-2-Clause

package satld

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layers is the order of docs/architecture.md: a package imports only what
// stands below it. Packages on one line do not import each other.
var layers = [][]string{
	{"cmd/satld", "cmd/satl", "cmd/satl-init"},
	{"api"},
	{"cluster"},
	{"apps", "mesh"},
	{"orchestrator"},
	{"raft"},
	{"executor"},
	{"healthcheck"},
	{"traffic"},
	{"pf", "nft", "forward"},
	{"redirect"},
	{"dns"},
	{"network"},
	{"jail"},
	{"image"},
	{"events"},
	{"platform"},
}

// apart are trees with rules of their own: tests, benches and scripts may
// import anything.
var apart = []string{"e2e", "bench", "scripts", "testdata", "internal"}

// longest is how many lines a source file may have before it surely holds
// more than one noun.
const longest = 500

func layer(pkg string) int {
	for i, l := range layers {
		for _, p := range l {
			if pkg == p || strings.HasPrefix(pkg, p+"/") {
				return i
			}
		}
	}
	return -1
}

// sources calls each for every Go file of the module.
func sources(t *testing.T, each func(path, pkg string, file *ast.File, fset *token.FileSet)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != "." || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		each(path, filepath.ToSlash(filepath.Dir(path)), file, fset)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestImportsPointDown(t *testing.T) {
	sources(t, func(path, pkg string, file *ast.File, _ *token.FileSet) {
		top, _, _ := strings.Cut(pkg, "/")
		if pkg == "." || slices.Contains(apart, top) || strings.HasSuffix(path, "_test.go") {
			return
		}
		from := layer(pkg)
		if from < 0 {
			t.Errorf("%s: package %s has no place in the layers", path, pkg)
			return
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			inside, ok := strings.CutPrefix(imported, "satld/")
			if !ok {
				continue
			}
			to := layer(inside)
			own := func(p string) string {
				return layers[from][slices.IndexFunc(layers[from], func(l string) bool { return p == l || strings.HasPrefix(p, l+"/") })]
			}
			switch {
			case to < 0:
				t.Errorf("%s imports %s, which has no place in the layers", path, inside)
			case to < from, to == from && own(pkg) != own(inside):
				t.Errorf("%s imports %s: imports point down", path, inside)
			}
		}
	})
}

func TestEveryFileIsHeaded(t *testing.T) {
	sources(t, func(path, _ string, _ *ast.File, _ *token.FileSet) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(data), "// SPDX-License-Identifier: BSD-2-Clause\n") {
			t.Errorf("%s: no SPDX header", path)
		}
	})
}

func TestEveryPackageIsDocumented(t *testing.T) {
	documented := map[string]bool{}
	sources(t, func(path, pkg string, file *ast.File, _ *token.FileSet) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		documented[pkg] = documented[pkg] || file.Doc != nil
	})
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("package %s has no doc comment", pkg)
		}
	}
}

func TestFilesHoldOneNoun(t *testing.T) {
	sources(t, func(path, _ string, file *ast.File, fset *token.FileSet) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		if n := fset.Position(file.End()).Line; n > longest {
			t.Errorf("%s has %d lines: does it still hold one noun?", path, n)
		}
	})
}
