// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"net/http"
	"regexp"
	"strings"

	cplatforms "github.com/containerd/platforms"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/go-connections/nat"

	"satld/executor"
	"satld/image"
)

// containerNamePattern is Docker's own.
var containerNamePattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]+$`)

// containerName checks a name that a client gave; "" stays "".
func containerName(name string) (string, error) {
	trimmed := strings.TrimPrefix(name, "/")
	if name != "" && !containerNamePattern.MatchString(trimmed) {
		return "", errInvalid("Invalid container name (%s), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed", name)
	}
	return trimmed, nil
}

// checkEnv refuses entries of an environment that name no variable.
func checkEnv(env []string) error {
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if name == "" || strings.ContainsRune(kv, 0) {
			return errInvalid("invalid environment variable: %q", kv)
		}
	}
	return nil
}

// containerCreate is POST /containers/create, for `run`. The container API
// reads no healthcheck: it is accepted by the parser and dropped, and a
// published port is neither gated nor warned about (spec/healthchecks.txt).
func (s *Server) containerCreate(w http.ResponseWriter, r *http.Request) error {
	name, err := containerName(r.URL.Query().Get("name"))
	if err != nil {
		return err
	}
	var in container.CreateRequest
	if err := decodeJSON(w, r, &in); err != nil {
		return err
	}
	if in.Config == nil {
		return errInvalid("config cannot be empty in order to create a container")
	}
	config, host := in.Config, in.HostConfig
	if host == nil {
		host = &container.HostConfig{}
	}
	config.Healthcheck = nil
	if !since(r, "1.25") {
		host.AutoRemove = false // with these versions the client removes it
	}
	if host.PidsLimit != nil && *host.PidsLimit <= 0 {
		host.PidsLimit = nil // no limit
	}
	if host.NetworkMode == "" || host.NetworkMode.IsDefault() {
		host.NetworkMode = network.NetworkBridge
	}
	warnings, err := admitRun(config, host, s.cfg.Runtime)
	if err != nil {
		return err
	}
	img, err := s.createImage(config.Image, r.URL.Query().Get("platform"))
	if err != nil {
		return err
	}
	if host.PublishAllPorts {
		exposeImagePorts(config, img)
	}
	req := executor.CreateRequest{Name: name, Config: config, HostConfig: host}
	req.NetworkIDs, req.Aliases, err = s.createNetworks(r.Context(), host.NetworkMode, in.NetworkingConfig)
	if err != nil {
		return err
	}
	id, more, err := s.cfg.Containers.Create(r.Context(), req)
	if err != nil {
		return err
	}
	out := container.CreateResponse{ID: id, Warnings: append([]string{}, append(warnings, more...)...)}
	return writeJSON(w, http.StatusCreated, &out)
}

// createImage finds the image of a new container. A missing one, or one for
// another platform than asked for, is a 404: the CLI then pulls it.
func (s *Server) createImage(ref, platform string) (image.Image, error) {
	if ref == "" {
		return image.Image{}, errInvalid("no image specified")
	}
	img, err := s.cfg.Images.Get(ref)
	if err != nil {
		if statusOf(err) == http.StatusNotFound {
			return img, errNotFound("No such image: %s", familiarTagged(ref))
		}
		return img, err
	}
	if platform == "" {
		return img, nil
	}
	want, err := cplatforms.Parse(platform)
	if err != nil {
		return img, errInvalid("invalid platform %q: %v", platform, err)
	}
	if have := imagePlatform(img); !cplatforms.OnlyStrict(want).Match(have) {
		return img, errNotFound("image with reference %s was found but its platform (%s) does not match the specified platform (%s)",
			ref, cplatforms.Format(have), cplatforms.Format(cplatforms.Normalize(want)))
	}
	return img, nil
}

// familiarTagged is a reference as people write it, with the tag it means.
func familiarTagged(ref string) string {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return ref
	}
	return reference.FamiliarString(named)
}

// exposeImagePorts adds the ports that the image exposes, for `run -P`.
func exposeImagePorts(config *container.Config, img image.Image) {
	for spec := range img.Config.Config.ExposedPorts {
		proto, port := nat.SplitProtoPort(spec)
		p, err := nat.NewPort(proto, port)
		if err != nil {
			continue // an image may say anything
		}
		if config.ExposedPorts == nil {
			config.ExposedPorts = nat.PortSet{}
		}
		config.ExposedPorts[p] = struct{}{}
	}
}
