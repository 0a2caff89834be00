// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"bufio"
	"compress/bzip2"
	"compress/flate"
	stdgzip "compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/moby/go-archive/compression"
	splittar "github.com/vbatts/tar-split/archive/tar"
	"github.com/vbatts/tar-split/tar/storage"
)

// decompress is archive without its compression, if it has one: gzip, bzip2
// and zstd in this process, xz by the program of that name. The library would
// run unpigz as well where it finds it; then what is wrong with an archive
// would come as another program's text.
func decompress(archive io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(archive, 64<<10)
	head, err := buffered.Peek(10)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch compression.Detect(head) {
	case compression.None:
		return io.NopCloser(buffered), nil
	case compression.Gzip:
		return gzip.NewReader(buffered)
	case compression.Bzip2:
		return io.NopCloser(bzip2.NewReader(buffered)), nil
	case compression.Zstd:
		z, err := zstd.NewReader(buffered, zstd.WithDecoderMaxMemory(256<<20))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return compression.DecompressStream(buffered)
}

// archiveFault gives ErrInvalidArgument to what is wrong with an archive
// itself. One that only ends too early is not judged here: a connection may
// have broken.
func archiveFault(err error) error {
	var corrupt flate.CorruptInputError
	var bz bzip2.StructuralError
	for _, fault := range []error{
		storage.ErrDuplicatePath, splittar.ErrHeader, stdgzip.ErrHeader, stdgzip.ErrChecksum,
		zstd.ErrMagicMismatch, zstd.ErrCRCMismatch, zstd.ErrReservedBlockType, zstd.ErrWindowSizeExceeded,
		zstd.ErrDecoderSizeExceeded, zstd.ErrCompressedSizeTooBig, zstd.ErrBlockTooSmall, zstd.ErrUnexpectedBlockSize,
	} {
		if errors.Is(err, fault) {
			return asInvalid(fmt.Errorf("reading archive: %w", err))
		}
	}
	if errors.As(err, &corrupt) || errors.As(err, &bz) {
		return asInvalid(fmt.Errorf("reading archive: %w", err))
	}
	return err
}
