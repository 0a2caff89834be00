// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"fmt"
	"io"

	"satld/jail/logfile"
	"satld/jail/shim"
)

// Attach: see Runtime. Output from now on is copied as it comes.
func (m *Manager) Attach(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer) error {
	return m.attach(ctx, id, false, stdin, stdout, stderr)
}

// AttachFromStart is Attach with all that this run has put out so far first:
// Create began its log anew.
func (m *Manager) AttachFromStart(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer) error {
	return m.attach(ctx, id, true, stdin, stdout, stderr)
}

func (m *Manager) attach(ctx context.Context, id string, fromStart bool, stdin io.Reader, stdout, stderr io.Writer) error {
	if err := checkID(id); err != nil {
		return err
	}
	if err := m.exists(id); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// "From now on" is from here: before anything that takes time, as the
	// client that attached may have the container started next. What comes
	// until the shim is asked for nudges is read before the first one.
	r := logfile.NewReader(m.dir.Logs(id))
	defer r.Close()
	if !fromStart {
		if err := r.SkipToEnd(); err != nil {
			return fmt.Errorf("attach to container %s: %w", id, err)
		}
	}
	nudges, more, err := m.follow(ctx, id)
	if err != nil {
		return fmt.Errorf("attach to container %s: %w", id, err)
	}
	if stdin != nil {
		w, err := m.shim.Stdin(ctx, id)
		switch {
		case err == nil:
			go func() {
				io.Copy(w, stdin)
				w.Close()
			}()
		case !shim.IsKind(err, shim.KindNotFound): // a container without stdin takes none
			return fmt.Errorf("attach to container %s: %w", id, err)
		}
	}
	copyPiece := func(p logfile.Piece) error {
		w := stdout
		if p.Stream == logfile.Stderr {
			w = stderr
		}
		if w == nil {
			return nil
		}
		_, err := w.Write(p.Data)
		return err
	}
	return m.drainFollow(ctx, id, r, nudges, more, copyPiece)
}

// Resize: see Runtime.
func (m *Manager) Resize(ctx context.Context, id string, width, height uint16) error {
	if err := checkID(id); err != nil {
		return err
	}
	if err := m.exists(id); err != nil {
		return err
	}
	err := m.again(ctx, func() error { return m.shim.Resize(ctx, id, width, height) })
	if shim.IsKind(err, shim.KindNotFound) {
		return notRunning(id)
	}
	return err
}
