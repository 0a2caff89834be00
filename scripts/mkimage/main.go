// SPDX-License-Identifier: BSD-2-Clause

// Command mkimage makes an image of a directory, as an archive that `docker
// load` and `satl load` take:
//
//	go run ./scripts/mkimage -root DIR -tag web:1 -cmd '["/bin/server"]' -o OUT.tar
//
// It needs neither Docker nor root: all files are root's in the image,
// whoever's they are here.
package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	root := flag.String("root", "", "`directory` that becomes the image's root file system")
	tag := flag.String("tag", "", "name of the image, `name:tag`")
	out := flag.String("o", "", "`file` to write")
	var c v1.Config
	flag.Func("cmd", "command, as a JSON `array`", jsonArray(&c.Cmd))
	flag.Func("entrypoint", "entrypoint, as a JSON `array`", jsonArray(&c.Entrypoint))
	flag.Func("env", "environment, `NAME=value`; may be repeated", func(s string) error {
		if !strings.Contains(s, "=") {
			return errors.New("want NAME=value")
		}
		c.Env = append(c.Env, s)
		return nil
	})
	flag.Func("expose", "`port/protocol` it listens on; may be repeated", func(s string) error {
		if c.ExposedPorts == nil {
			c.ExposedPorts = map[string]struct{}{}
		}
		c.ExposedPorts[s] = struct{}{}
		return nil
	})
	flag.StringVar(&c.User, "user", "", "`user` it runs as")
	flag.StringVar(&c.WorkingDir, "workdir", "", "working `directory`")
	flag.StringVar(&c.StopSignal, "stop-signal", "", "`signal` that stops it")
	flag.Parse()
	if *root == "" || *tag == "" || *out == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: mkimage -root DIR -tag NAME:TAG -o OUT.tar [-cmd '[\"...\"]'] ...")
		flag.PrintDefaults()
		os.Exit(2)
	}
	if err := run(*root, *tag, *out, c); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func jsonArray(into *[]string) func(string) error {
	return func(s string) error { return json.Unmarshal([]byte(s), into) }
}

// run writes the image; out is whole or not there.
func run(root, tag, out string, c v1.Config) error {
	ref, err := name.NewTag(tag)
	if err != nil {
		return err
	}
	layerFile, err := os.CreateTemp(filepath.Dir(out), ".mkimage-layer-")
	if err != nil {
		return err
	}
	defer os.Remove(layerFile.Name())
	defer layerFile.Close()
	if err := writeLayer(root, layerFile); err != nil {
		return err
	}
	layer, err := tarball.LayerFromFile(layerFile.Name())
	if err != nil {
		return err
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, Created: v1.Time{Time: time.Now().UTC()}, Config: c, RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return err
	}
	if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{CreatedBy: "scripts/mkimage"}}); err != nil {
		return err
	}
	part := out + ".part"
	defer os.Remove(part)
	if err := tarball.WriteToFile(part, ref, img); err != nil {
		return err
	}
	return os.Rename(part, out)
}

// writeLayer archives all below root, in the order of the names.
func writeLayer(root string, w io.Writer) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil || rel == "." {
			return err
		}
		return writeEntry(tw, path, filepath.ToSlash(rel), d)
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

func writeEntry(tw *tar.Writer, path, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	if info.Mode()&(os.ModeSocket|os.ModeNamedPipe|os.ModeDevice) != 0 {
		return fmt.Errorf("%s: a device, pipe or socket has no place in an image", path)
	}
	target := ""
	if info.Mode()&os.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	hdr, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	hdr.Name, hdr.Uid, hdr.Gid, hdr.Uname, hdr.Gname = name, 0, 0, "", ""
	hdr.ModTime = hdr.ModTime.Truncate(time.Second) // finer times need larger headers
	hdr.AccessTime, hdr.ChangeTime = time.Time{}, time.Time{}
	if d.IsDir() {
		hdr.Name += "/"
	}
	if err := tw.WriteHeader(hdr); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(tw, f)
	return err
}
