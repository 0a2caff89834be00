// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

const prefix = "/usr/local"

// staged is one file of the package.
type staged struct {
	path string // as installed
	mode os.FileMode
	data []byte
}

func (f staged) sum() string {
	sum := sha256.Sum256(f.data)
	return hex.EncodeToString(sum[:])
}

// contents are the files of a package: where they come from, where they go
// below the prefix, their modes.
func (p pkg) contents() []struct {
	from, to string
	mode     os.FileMode
} {
	conf := filepath.Join(p.source, "packaging/freebsd")
	docs := filepath.Join(p.source, "docs")
	return []struct {
		from, to string
		mode     os.FileMode
	}{
		{filepath.Join(p.binaries, "satl"), "bin/satl", 0o555},
		{filepath.Join(conf, "newsyslog.conf.sample"), "etc/newsyslog.conf.d/satld.conf.sample", 0o644},
		{filepath.Join(conf, "satld.rc"), "etc/rc.d/satld", 0o555},
		{filepath.Join(conf, "satld.toml.sample"), "etc/satl/satld.toml.sample", 0o644},
		{filepath.Join(conf, "syslog.conf.sample"), "etc/syslog.d/satld.conf.sample", 0o644},
		{filepath.Join(p.binaries, "satld"), "sbin/satld", 0o555},
		{filepath.Join(docs, "docker-differences.md"), "share/doc/satld/docker-differences.md", 0o644},
		{filepath.Join(docs, "freebsd.md"), "share/doc/satld/freebsd.md", 0o644},
		{filepath.Join(docs, "health.md"), "share/doc/satld/health.md", 0o644},
		{filepath.Join(conf, "pf.conf.sample"), "share/examples/satld/pf.conf", 0o644},
		{filepath.Join(p.source, "LICENSE"), "share/licenses/satld-" + p.version + "/BSD2CLAUSE", 0o644},
	}
}

// fill makes the staged tree anew.
func (p pkg) fill() ([]staged, error) {
	if err := os.RemoveAll(p.stage()); err != nil {
		return nil, err
	}
	var all []staged
	for _, c := range p.contents() {
		data, err := os.ReadFile(c.from)
		if err != nil {
			return nil, err
		}
		f := staged{path: prefix + "/" + c.to, mode: c.mode, data: data}
		at := filepath.Join(p.stage(), f.path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, data, 0o600)); err != nil {
			return nil, err
		}
		// Whatever the umask is.
		if err := errors.Join(os.Chmod(at, f.mode), os.Chtimes(at, p.time, p.time)); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// archive writes the package: a tar archive, compressed, with the manifests
// first and the files by their full paths.
func (p pkg) archive(files []staged, whole, compact string) error {
	var out bytes.Buffer
	zip, err := zstd.NewWriter(&out, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	w := tar.NewWriter(zip)
	members := append([]staged{
		{path: "+COMPACT_MANIFEST", mode: 0o644, data: []byte(compact)},
		{path: "+MANIFEST", mode: 0o644, data: []byte(whole)},
	}, files...)
	for _, f := range members {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: int64(f.mode), Size: int64(len(f.data)),
			Uname: "root", Gname: "wheel", ModTime: p.time}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		return err
	}
	return os.WriteFile(p.file(), out.Bytes(), 0o644)
}
