// SPDX-License-Identifier: BSD-2-Clause

// Command mkpackage makes the package for FreeBSD out of this tree and two
// programs built for it:
//
//	go run ./scripts/mkpackage -version 1.2 -binaries DIR -out DIST
//
// DIST/stage is then the tree as it is installed, DIST/+MANIFEST describes it for
// `pkg create -M DIST/+MANIFEST -r DIST/stage`, and DIST/satld-1.2.pkg is that
// package already, for pkg-add(8). It needs no FreeBSD, no pkg and no root, and
// makes the same bytes of the same input.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	var p pkg
	version := flag.String("version", "", "`version`, as git describe gives it")
	flag.StringVar(&p.source, "source", ".", "`directory` of this source tree")
	flag.StringVar(&p.binaries, "binaries", "", "`directory` with satld and satl for FreeBSD")
	flag.StringVar(&p.out, "out", "", "`directory` to write to")
	flag.StringVar(&p.arch, "arch", "amd64", "`machine`, as in pkg's ABI")
	flag.StringVar(&p.www, "www", "https://satld.example.org/", "`URL` of the project, which pkg asks for")
	flag.StringVar(&p.maintainer, "maintainer", "root@localhost", "`address` of who answers for the package")
	epoch := flag.Int64("time", 0, "seconds since 1970 that files are from")
	flag.Parse()
	p.version, p.time = pkgVersion(*version), time.Unix(*epoch, 0).UTC()
	if err := p.make(); err != nil {
		fmt.Fprintln(os.Stderr, "mkpackage:", err)
		os.Exit(1)
	}
	fmt.Println(p.file())
}

// pkg is one package.
type pkg struct {
	source, binaries, out string

	version, arch, www, maintainer string
	time                           time.Time
}

// file is the package itself.
func (p pkg) file() string { return filepath.Join(p.out, "satld-"+p.version+".pkg") }

// stage is the tree as it is installed, from the root on.
func (p pkg) stage() string { return filepath.Join(p.out, "stage") }

func (p pkg) make() error {
	if p.binaries == "" || p.out == "" {
		return fmt.Errorf("-binaries and -out are required")
	}
	staged, err := p.fill()
	if err != nil {
		return err
	}
	m, err := p.manifest(staged)
	if err != nil {
		return err
	}
	whole, compact, err := m.encode()
	if err != nil {
		return err
	}
	for name, data := range map[string]string{"+MANIFEST": whole, "+COMPACT_MANIFEST": compact} {
		if err := os.WriteFile(filepath.Join(p.out, name), []byte(data), 0o644); err != nil {
			return err
		}
	}
	return p.archive(staged, whole, compact)
}

var described = regexp.MustCompile(`^v?([0-9]+(?:\.[0-9]+)*)(?:-([0-9]+)-g([0-9a-f]+))?(-dirty)?$`)

// pkgVersion makes a version that pkg-version(8) orders as git describe means
// it: no dash, commits after a tag as one more number. A tree without tags is 0.
func pkgVersion(describe string) string {
	m := described.FindStringSubmatch(describe)
	if m == nil {
		clean := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(describe), ".")
		return strings.TrimRight("0.g"+strings.Trim(clean, "."), ".")
	}
	version := m[1]
	if m[2] != "" {
		version += "." + m[2] + ".g" + m[3]
	}
	if m[4] != "" {
		version += ".dirty"
	}
	return version
}
