// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/docker/docker/api/types/swarm"
)

// payload is a kind of contents that the cluster keeps for tasks: secrets and
// configs, which differ in their types and in little else. Stored is SwarmKit's
// type; Shown and Spec are Docker's.
type payload[Stored, Shown, Spec any] struct {
	what    string   // "secret"
	filters []string // of a list

	list   func(ctx context.Context, f payloadFilters) ([]*Stored, error)
	get    func(ctx context.Context, id string) (*Stored, error)
	create func(ctx context.Context, in Spec) (id string, err error)
	update func(ctx context.Context, id string, version uint64, in Spec) error
	remove func(ctx context.Context, id string) error

	admit func(r *http.Request, in Spec) error
	id    func(*Stored) string
	show  func(*Stored) Shown
	made  func(Shown) time.Time
}

// payloadFilters are SwarmKit's.
type payloadFilters struct {
	Names, NamePrefixes, IDPrefixes []string
	Labels                          map[string]string
}

func (p *payload[Stored, Shown, Spec]) routes(s *Server, r *routes) {
	at := "/" + p.what + "s"
	r.get(at, s.manager(p.serveList))
	r.post(at+"/create", s.manager(p.serveCreate))
	r.get(at+"/{id}", s.manager(p.serveInspect))
	r.del(at+"/{id}", s.manager(p.serveRemove))
	r.post(at+"/{id}/update", s.manager(p.serveUpdate))
}

func (p *payload[Stored, Shown, Spec]) serveList(w http.ResponseWriter, r *http.Request) error {
	args, err := parseFilters(r, p.filters...)
	if err != nil {
		return err
	}
	found, err := p.list(r.Context(), payloadFilters{
		Names: args.Get("names"), NamePrefixes: args.Get("name"), IDPrefixes: args.Get("id"),
		Labels: convertLabelFilters(args.Get("label")),
	})
	if err != nil {
		return err
	}
	shown := make([]Shown, 0, len(found))
	for _, x := range found {
		shown = append(shown, p.show(x))
	}
	slices.SortFunc(shown, func(a, b Shown) int { return p.made(a).Compare(p.made(b)) })
	return writeJSON(w, http.StatusOK, shown)
}

func (p *payload[Stored, Shown, Spec]) serveInspect(w http.ResponseWriter, r *http.Request) error {
	found, err := p.find(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, p.show(found))
}

func (p *payload[Stored, Shown, Spec]) serveCreate(w http.ResponseWriter, r *http.Request) error {
	var in Spec
	if err := decodeJSON(w, r, &in); err != nil {
		return err
	}
	if err := p.admit(r, in); err != nil {
		return err
	}
	id, err := p.create(r.Context(), in)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, struct{ ID string }{id})
}

// serveUpdate changes labels, which is all that may change.
func (p *payload[Stored, Shown, Spec]) serveUpdate(w http.ResponseWriter, r *http.Request) error {
	var in Spec
	if err := decodeJSON(w, r, &in); err != nil {
		return err
	}
	version, err := queryVersion(r, p.what)
	if err != nil {
		return err
	}
	found, err := p.find(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	return p.update(r.Context(), p.id(found), version, in)
}

func (p *payload[Stored, Shown, Spec]) serveRemove(w http.ResponseWriter, r *http.Request) error {
	found, err := p.find(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	if err := p.remove(r.Context(), p.id(found)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// find finds one by ID, name, or unique prefix of its ID.
func (p *payload[Stored, Shown, Spec]) find(ctx context.Context, input string) (*Stored, error) {
	return uniquely(p.what, input,
		func(id string) (*Stored, error) { return p.get(ctx, id) },
		func(name string) ([]*Stored, error) { return p.list(ctx, payloadFilters{Names: []string{name}}) },
		func(prefix string) ([]*Stored, error) {
			return p.list(ctx, payloadFilters{IDPrefixes: []string{prefix}})
		})
}

// admitTemplating takes the one template language that there is.
func admitTemplating(r *http.Request, what string, t *swarm.Driver) error {
	switch {
	case t == nil:
		return nil
	case !since(r, "1.37"):
		return errInvalid("%s templating is not supported on the specified API version: %s", what, apiVersion(r))
	case t.Name != "golang":
		return errNotSupported("template driver %q of a %s is not supported: there is golang alone", t.Name, what)
	case len(t.Options) > 0:
		return errNotSupported("options of a %s's template driver are not supported: golang has none", what)
	}
	return nil
}
