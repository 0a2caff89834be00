// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"crypto/rand"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"satld/platform/atomicfile"
)

// reserveSize is the bytes kept to write an index with on a full disk: a
// thousand names fit. The content is random, as some file systems would store
// a compressible one in no space at all.
const reserveSize = 128 << 10

// keepReserve has the reserve, if there is room for it.
func (s *Store) keepReserve() {
	if st, err := os.Stat(s.path("reserve")); err == nil && st.Size() == reserveSize {
		return
	}
	// Durably, so that the space is taken now; once in a long time.
	data := make([]byte, reserveSize)
	rand.Read(data)
	if err := atomicfile.WriteDurably(s.path("reserve"), data, fileMode); err != nil {
		s.log.Warn("no space is kept for removing images on a full disk", "error", err)
	}
}

func (s *Store) dropReserve() {
	if err := os.Remove(s.path("reserve")); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.Warn("giving up the space kept for a full disk failed", "error", err)
	}
}

// isFull tells whether err is a full disk or a quota.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
