// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"io"
	"net/http"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/events"

	"satld/image"
)

// imageImport makes an image of a root file system in the request's body.
func (s *Server) imageImport(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if q.Get("fromSrc") != "-" {
		return errNotSupported("importing from a URL is not supported: fetch it and send it as the body (fromSrc=-)")
	}
	ref := ""
	if q.Get("repo") != "" {
		target, err := repoTag(q.Get("repo"), q.Get("tag"))
		if err != nil {
			return err
		}
		ref = reference.FamiliarString(target)
	}
	message := q.Get("message")
	if message == "" {
		message = "Imported from -"
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := newProgressStream(w, cancel)
	img, err := s.cfg.Images.Import(ctx, r.Body, ref, message, q["changes"])
	if err != nil {
		return out.end(err)
	}
	s.imageEvent(events.ActionImport, img.ID, img.ID, img.Config.Config.Labels)
	out.status("", img.ID)
	return out.end(nil)
}

// imageLoad is POST /images/load.
func (s *Server) imageLoad(w http.ResponseWriter, r *http.Request) error {
	if err := noPlatforms(r, "platform", "1.48"); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := newProgressStream(w, cancel)
	var progress image.Progress
	if !queryBoolDefault(r, "quiet", true) {
		progress = out.progress
	}
	images, err := s.cfg.Images.Load(ctx, r.Body, progress)
	for _, img := range images {
		s.imageEvent(events.ActionLoad, img.ID, img.ID, img.Config.Config.Labels)
		for _, tag := range img.RepoTags {
			out.text("Loaded image: " + tag + "\n")
		}
		if len(img.RepoTags) == 0 {
			out.text("Loaded image ID: " + img.ID + "\n")
		}
	}
	if err == nil && len(images) == 0 {
		err = errInvalid("the archive holds no image")
	}
	return out.end(err)
}

// imageSave is GET /images/{name}/get and GET /images/get?names=...
func (s *Server) imageSave(w http.ResponseWriter, r *http.Request) error {
	if err := noPlatforms(r, "platform", "1.48"); err != nil {
		return err
	}
	names := r.URL.Query()["names"]
	if name := pathVar(r, "name"); name != "" {
		names = []string{name}
	}
	if len(names) == 0 {
		return errInvalid("no image named to save")
	}
	for _, name := range names {
		if _, err := s.image(name); err != nil {
			return err
		}
	}
	w.Header().Set("Content-Type", "application/x-tar")
	out := &countedWriter{to: w}
	if err := s.cfg.Images.Save(r.Context(), names, out); err != nil {
		if out.n == 0 {
			w.Header().Del("Content-Type")
			return err
		}
		if r.Context().Err() == nil {
			s.log.Error("saving images broken off", "images", names, "err", err)
		}
		// Half an archive must not look like a whole one.
		panic(http.ErrAbortHandler)
	}
	for _, name := range names {
		if img, err := s.cfg.Images.Get(name); err == nil {
			s.imageEvent(events.ActionSave, img.ID, img.ID, img.Config.Config.Labels)
		}
	}
	return nil
}

// countedWriter counts what went through it.
type countedWriter struct {
	to io.Writer
	n  int64
}

func (c *countedWriter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}
