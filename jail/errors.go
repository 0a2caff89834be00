// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
)

// ErrUnmade says that the shim died while it made a container, and that nothing
// of it is left: it can be tried again (where names are used once, by another).
var ErrUnmade = errors.New("the shim died while the container was made")

// errShimLost: the shim died while it was asked, and may have done it.
var errShimLost = errors.New("the shim was lost")

func invalid(format string, args ...any) error {
	return errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf(format, args...))
}

func unsupported(format string, args ...any) error {
	return errdefs.ErrNotImplemented.WithMessage(fmt.Sprintf(format, args...))
}

// notFound and notRunning are in Docker's words.
func notFound(id string) error {
	return errdefs.ErrNotFound.WithMessage("No such container: " + id)
}

func notRunning(id string) error {
	return errdefs.ErrConflict.WithMessage("container " + id + " is not running")
}

func isNotFound(err error) bool { return errdefs.IsNotFound(err) }

func errPaused(id string) error {
	return errdefs.ErrConflict.WithMessage("Container " + id + " is paused, unpause the container before exec")
}
