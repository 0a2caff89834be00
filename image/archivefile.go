// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
)

// archiveFile is an image archive that can be read out of order, as the
// description of an image may come after its layers: the uncompressed
// archive is kept in a file without a name, which the system frees when it is
// closed or the process ends.
type archiveFile struct {
	file    *os.File
	members map[string]member
}

// member is one file of the archive, or a link to another.
type member struct {
	offset, size int64
	link         string // its target, relative to the archive's root
}

// spool reads an archive to its end. tmp is where the file is made.
func spool(ctx context.Context, tmp string, archive io.Reader) (*archiveFile, error) {
	f, err := os.CreateTemp(tmp, "archive-")
	if err != nil {
		return nil, fmt.Errorf("keeping image archive: %w", err)
	}
	a := &archiveFile{file: f, members: map[string]member{}}
	err = os.Remove(f.Name())
	if err == nil {
		err = a.fill(ctx, archive)
	}
	if err != nil {
		f.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("keeping image archive: %w", truncatedIsInvalid(archiveFault(err)))
	}
	if err := a.scan(); err != nil {
		f.Close()
		return nil, errInvalid("invalid image archive: %v", err)
	}
	return a, nil
}

func (a *archiveFile) fill(ctx context.Context, archive io.Reader) error {
	plain, err := decompress(ctxReader{ctx, archive})
	if err != nil {
		return err
	}
	defer plain.Close()
	_, err = io.Copy(a.file, plain)
	return err
}

// scan notes where in the file each member is.
func (a *archiveFile) scan() error {
	if _, err := a.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	tr := tar.NewReader(a.file) // seeks over contents
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := entryName(hdr.Name)
		if err != nil {
			return err
		}
		switch hdr.Typeflag {
		case tar.TypeReg:
			at, err := a.file.Seek(0, io.SeekCurrent)
			if err != nil {
				return err
			}
			a.members[name] = member{offset: at, size: hdr.Size}
		case tar.TypeSymlink:
			a.members[name] = member{link: path.Join(path.Dir(name), hdr.Linkname)}
		case tar.TypeLink:
			a.members[name] = member{link: path.Clean(hdr.Linkname)}
		}
	}
}

func (a *archiveFile) Close() error { return a.file.Close() }

// open finds a member; links are followed within the archive. Errors are
// ErrInvalidArgument.
func (a *archiveFile) open(name string) (*io.SectionReader, error) {
	at := path.Clean(name)
	for range 8 {
		m, ok := a.members[at]
		if !ok {
			break
		}
		if m.link == "" {
			return io.NewSectionReader(a.file, m.offset, m.size), nil
		}
		at = m.link
	}
	return nil, errInvalid("invalid image archive: it has no file %q", name)
}

func (a *archiveFile) has(name string) bool {
	_, err := a.open(name)
	return err == nil
}

// read returns a small member's content.
func (a *archiveFile) read(name string) ([]byte, error) {
	r, err := a.open(name)
	if err != nil {
		return nil, err
	}
	if r.Size() > maxConfig {
		return nil, errInvalid("invalid image archive: %q has %d bytes, more than %d", name, r.Size(), maxConfig)
	}
	return io.ReadAll(r)
}
