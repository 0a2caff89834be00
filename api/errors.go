// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"syscall"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Errors of this package carry the message alone, as Docker's do; the class
// is in their type.

func errInvalid(format string, args ...any) error { // 400
	return errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf(format, args...))
}

func errNotFound(format string, args ...any) error { // 404
	return errdefs.ErrNotFound.WithMessage(fmt.Sprintf(format, args...))
}

func errConflict(format string, args ...any) error { // 409
	return errdefs.ErrConflict.WithMessage(fmt.Sprintf(format, args...))
}

func errForbidden(format string, args ...any) error { // 403
	return errdefs.ErrPermissionDenied.WithMessage(fmt.Sprintf(format, args...))
}

func errUnavailable(format string, args ...any) error { // 503
	return errdefs.ErrUnavailable.WithMessage(fmt.Sprintf(format, args...))
}

// errNotSupported refuses what Docker can and satld cannot: 501.
func errNotSupported(format string, args ...any) error {
	return errdefs.ErrNotImplemented.WithMessage(fmt.Sprintf(format, args...))
}

// classes maps typed errors to statuses; the first that matches counts.
var classes = []struct {
	is     func(error) bool
	status int
}{
	{errdefs.IsNotFound, http.StatusNotFound},
	{errdefs.IsInvalidArgument, http.StatusBadRequest},
	{errdefs.IsOutOfRange, http.StatusBadRequest},
	{errdefs.IsConflict, http.StatusConflict},
	{errdefs.IsAlreadyExists, http.StatusConflict},
	{errdefs.IsFailedPrecondition, http.StatusConflict},
	{errdefs.IsUnauthorized, http.StatusUnauthorized},
	{errdefs.IsPermissionDenied, http.StatusForbidden},
	{errdefs.IsNotModified, http.StatusNotModified},
	{errdefs.IsNotImplemented, http.StatusNotImplemented},
	{errdefs.IsUnavailable, http.StatusServiceUnavailable},
}

// grpcStatuses is the same for the statuses of SwarmKit's control API, with
// Docker's own mapping.
var grpcStatuses = map[codes.Code]int{
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.NotFound:           http.StatusNotFound,
	codes.AlreadyExists:      http.StatusConflict,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.FailedPrecondition: http.StatusBadRequest,
	codes.Unauthenticated:    http.StatusUnauthorized,
	codes.OutOfRange:         http.StatusBadRequest,
	codes.Unimplemented:      http.StatusNotImplemented,
	codes.Unavailable:        http.StatusServiceUnavailable,
	// Not Docker's, which answers 500: a lost quorum or leader is worth
	// another try (cases/store.md, store-2).
	codes.DeadlineExceeded: http.StatusServiceUnavailable,
}

// statusOf is the HTTP status of an error: the one table of this package.
func statusOf(err error) int {
	var tooBig *http.MaxBytesError
	if errors.As(err, &tooBig) {
		return http.StatusRequestEntityTooLarge
	}
	for _, c := range classes {
		if c.is(err) {
			return c.status
		}
	}
	if s, ok := status.FromError(err); ok {
		if code, known := grpcStatuses[s.Code()]; known {
			return code
		}
		return http.StatusInternalServerError
	}
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return http.StatusInsufficientStorage
	case errors.Is(err, fs.ErrPermission):
		return http.StatusForbidden
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
