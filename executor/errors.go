// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"fmt"

	cerrdefs "github.com/containerd/errdefs"
)

// The errors a client sees: the text is what it is shown, the type decides
// the HTTP status.

func invalid(format string, args ...any) error {
	return cerrdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf(format, args...))
}

func conflict(format string, args ...any) error {
	return cerrdefs.ErrConflict.WithMessage(fmt.Sprintf(format, args...))
}

func unsupported(format string, args ...any) error {
	return cerrdefs.ErrNotImplemented.WithMessage(fmt.Sprintf(format, args...))
}

// notModified says that a container is already in the state that was asked
// for; Docker answers 304.
func notModified(format string, args ...any) error {
	return cerrdefs.ErrNotModified.WithMessage(fmt.Sprintf(format, args...))
}
