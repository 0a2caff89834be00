// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/vbatts/tar-split/tar/asm"
	"github.com/vbatts/tar-split/tar/storage"
	"golang.org/x/sys/unix"
)

// layer is one unpacked layer, kept once whichever images have it. On disk it
// is a directory layers/<hex of the diff ID> with
//
//	diff/              the files
//	tar-split.json.gz  the archive without the files' content, so that Save
//	                   can write the archive again byte for byte
//	layer.json         this struct
type layer struct {
	DiffID string         `json:"diffID"` // "sha256:<hex>" of the uncompressed archive
	Size   int64          `json:"size"`   // bytes of its regular files
	Format whiteoutFormat `json:"format"`
}

const (
	layerDiff  = "diff"
	layerSplit = "tar-split.json.gz"
	layerMeta  = "layer.json"
)

// unpackLayer unpacks archive, which may be compressed, into a new directory
// below tmp: all that makes a layer. want is its diff ID, or empty when that
// is still to be found out; another content is refused (ErrInvalidArgument).
// On an error nothing is left.
func unpackLayer(ctx context.Context, tmp, want string, format whiteoutFormat, archive io.Reader) (string, layer, error) {
	dir, err := os.MkdirTemp(tmp, "layer-")
	if err != nil {
		return "", layer{}, fmt.Errorf("unpacking layer: %w", err)
	}
	l, err := unpackInto(ctx, dir, want, format, archive)
	if err != nil {
		return "", layer{}, errors.Join(err, RemoveTree(dir))
	}
	return dir, l, nil
}

func unpackInto(ctx context.Context, dir, want string, format whiteoutFormat, archive io.Reader) (layer, error) {
	diff := filepath.Join(dir, layerDiff)
	if err := errors.Join(os.Mkdir(diff, 0o755), os.Chmod(diff, 0o755)); err != nil {
		return layer{}, fmt.Errorf("unpacking layer: %w", err)
	}
	split, err := os.Create(filepath.Join(dir, layerSplit))
	if err != nil {
		return layer{}, fmt.Errorf("unpacking layer: %w", err)
	}
	defer split.Close()
	sum, size, err := splitLayer(ctx, diff, format, split, archive)
	if err != nil {
		return layer{}, err
	}
	l := layer{DiffID: "sha256:" + hex.EncodeToString(sum), Size: size, Format: format}
	if want != "" && want != l.DiffID {
		return layer{}, errInvalid("invalid layer: its content is %s, the image names %s", l.DiffID, want)
	}
	meta, err := json.Marshal(l)
	if err != nil {
		return layer{}, err
	}
	if err := os.WriteFile(filepath.Join(dir, layerMeta), meta, 0o644); err != nil {
		return layer{}, fmt.Errorf("unpacking layer: %w", err)
	}
	return l, nil
}

// splitLayer unpacks archive below diff while it writes the archive's headers to
// split and sums up the uncompressed bytes.
func splitLayer(ctx context.Context, diff string, format whiteoutFormat, split io.Writer, archive io.Reader) (sum []byte, size int64, err error) {
	plain, err := decompress(ctxReader{ctx, archive})
	if err != nil {
		return nil, 0, archiveFault(err)
	}
	defer plain.Close()
	source := &hashReader{r: plain, sum: sha256.New()}
	zip, err := gzip.NewWriterLevel(split, gzip.BestSpeed)
	if err != nil {
		return nil, 0, err
	}
	// asm reads source in a goroutine of its own, which ends when the stream
	// that it hands back was read to its end or to its error.
	stream, err := asm.NewInputTarStream(source, storage.NewJSONPacker(zip), nil)
	if err != nil {
		return nil, 0, err
	}
	size, err = unpack(diff, stream, format)
	if err != nil {
		source.stop(err)
	}
	_, restErr := io.Copy(io.Discard, stream)
	if err == nil {
		err = restErr
	}
	if ctx.Err() != nil {
		return nil, 0, ctx.Err()
	}
	if err != nil {
		return nil, 0, archiveFault(err)
	}
	if err := zip.Close(); err != nil {
		return nil, 0, fmt.Errorf("unpacking layer: %w", err)
	}
	return source.sum.Sum(nil), size, nil
}

// writeLayer writes the layer's archive again, as it was unpacked.
func writeLayer(dir string, w io.Writer) error {
	split, err := os.Open(filepath.Join(dir, layerSplit))
	if err != nil {
		return err
	}
	defer split.Close()
	unzip, err := gzip.NewReader(split)
	if err != nil {
		return fmt.Errorf("reading %s: %w", split.Name(), err)
	}
	root, err := os.OpenRoot(filepath.Join(dir, layerDiff))
	if err != nil {
		return err
	}
	defer root.Close()
	return asm.WriteOutputTarStream(rootGetter{root}, storage.NewJSONUnpacker(unzip), w)
}

// rootGetter finds a layer's files for asm.
type rootGetter struct{ root *os.Root }

func (g rootGetter) Get(name string) (io.ReadCloser, error) {
	clean, err := entryName(name)
	if err != nil {
		return nil, err
	}
	f, err := g.root.OpenFile(clean, os.O_RDONLY|unix.O_NONBLOCK, 0) // never wait for a fifo's writer
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, fmt.Errorf("%s is no regular file", clean))
	}
	return f, nil
}

// hashReader sums up what is read through it. stop, which another goroutine
// may call, makes every later read fail.
type hashReader struct {
	r   io.Reader
	sum hash.Hash
	end atomic.Pointer[error]
}

func (h *hashReader) stop(err error) { h.end.Store(&err) }

func (h *hashReader) Read(p []byte) (int, error) {
	if err := h.end.Load(); err != nil {
		return 0, *err
	}
	n, err := h.r.Read(p)
	h.sum.Write(p[:n])
	return n, err
}

// ctxReader ends with the context's error once the context is done.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
