// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
)

// manifest is a package's +MANIFEST (pkg-create(8), "MANIFEST FILE DETAILS"),
// which is UCL; JSON is UCL too.
type manifest struct {
	Name         string                `json:"name"`
	Origin       string                `json:"origin"`
	Version      string                `json:"version"`
	Comment      string                `json:"comment"`
	Maintainer   string                `json:"maintainer"`
	WWW          string                `json:"www"`
	ABI          string                `json:"abi"`
	Prefix       string                `json:"prefix"`
	FlatSize     int64                 `json:"flatsize"`
	LicenseLogic string                `json:"licenselogic"`
	Licenses     []string              `json:"licenses"`
	Desc         string                `json:"desc"`
	Categories   []string              `json:"categories"`
	Deps         map[string]dependency `json:"deps"`
	Messages     []message             `json:"messages"`

	// Not in the compact one.
	Files       map[string]fileEntry `json:"files,omitempty"`
	Directories map[string]string    `json:"directories,omitempty"`
	Scripts     map[string]string    `json:"scripts,omitempty"`
}

type dependency struct {
	Origin  string `json:"origin"`
	Version string `json:"version"`
}

type message struct {
	Message string `json:"message"`
	Type    string `json:"type,omitempty"`
}

type fileEntry struct {
	Sum   string `json:"sum"` // "1$" and the SHA-256 in hex
	Uname string `json:"uname"`
	Gname string `json:"gname"`
	Perm  string `json:"perm"`
}

const description = `satld runs services as FreeBSD jails on one machine or a cluster, driven by the
Docker CLI, by satl, or by any Docker client over a unix socket. Health decides:
a task gets traffic when it has proved itself, loses it the moment it fails, and
is replaced within a budget; a rollout moves on proof alone.`

// The configuration is the operator's: it is made of the sample where there is
// none, and goes with the package only while it is the sample still. PKG_ROOTDIR
// is set by `pkg -r`.
const (
	postInstall = `etc="${PKG_ROOTDIR:-}/usr/local/etc/satl"
if [ ! -e "$etc/satld.toml" ]; then
	cp -p "$etc/satld.toml.sample" "$etc/satld.toml"
fi
`
	preDeinstall = `etc="${PKG_ROOTDIR:-}/usr/local/etc/satl"
if cmp -s "$etc/satld.toml.sample" "$etc/satld.toml"; then
	rm -f "$etc/satld.toml"
fi
`
)

func (p pkg) manifest(files []staged) (manifest, error) {
	said, err := os.ReadFile(filepath.Join(p.source, "packaging/freebsd/pkg-message"))
	if err != nil {
		return manifest{}, err
	}
	m := manifest{
		Name: "satld", Origin: "sysutils/satld", Version: p.version, Comment: "Services as jails behind the Docker API",
		Maintainer: p.maintainer, WWW: p.www, Prefix: prefix, LicenseLogic: "single", Licenses: []string{"BSD2CLAUSE"},
		// The programs are static: they run on any release that has the calls.
		ABI:  "FreeBSD:*:" + p.arch,
		Desc: description, Categories: []string{"sysutils"},
		Deps:        map[string]dependency{"ocijail": {Origin: "sysutils/ocijail", Version: "0.6.0"}},
		Messages:    []message{{Message: string(said), Type: "install"}},
		Files:       map[string]fileEntry{},
		Directories: map[string]string{prefix + "/etc/satl": "y"},
		Scripts:     map[string]string{"post-install": postInstall, "pre-deinstall": preDeinstall},
	}
	for _, f := range files {
		m.FlatSize += int64(len(f.data))
		m.Files[f.path] = fileEntry{Sum: "1$" + f.sum(), Uname: "root", Gname: "wheel", Perm: permission(f.mode)}
	}
	return m, nil
}

func permission(mode os.FileMode) string {
	const digits = "01234567"
	return string([]byte{'0', digits[mode>>6&7], digits[mode>>3&7], digits[mode&7]})
}

// encode writes the manifest and the compact one, which says nothing of files.
func (m manifest) encode() (whole, compact string, err error) {
	if whole, err = indented(m); err != nil {
		return "", "", err
	}
	m.Files, m.Directories, m.Scripts = nil, nil, nil
	compact, err = indented(m)
	return whole, compact, err
}

func indented(v any) (string, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return out.String(), err
}
