// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/api/types/strslice"

	"satld/image"
)

// ensureImage returns an image that is here, pulling it when it is not.
// encodedAuth is the X-Registry-Auth that came with the spec.
func (n *Node) ensureImage(ctx context.Context, ref, encodedAuth string) (image.Image, error) {
	img, err := n.cfg.Images.Get(ref)
	if err == nil || !cerrdefs.IsNotFound(err) {
		return img, err
	}
	auth := image.Auth{}
	if encodedAuth != "" {
		a, err := registry.DecodeAuthConfig(encodedAuth)
		if err != nil {
			return image.Image{}, fmt.Errorf("registry credentials of image %s: %w", ref, err)
		}
		auth = image.Auth{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken}
	}
	n.log.Info("pulling image", "image", ref)
	// What a registry, or the way to it, answers need not name the image.
	if img, err = n.cfg.Images.Pull(ctx, ref, auth, nil); err != nil {
		return image.Image{}, fmt.Errorf("pull image %s: %w", ref, err)
	}
	return img, nil
}

// fillFrom completes a record with what its image says: command, environment,
// working directory, user, stop signal, labels. Its HEALTHCHECK is not taken
// over (spec/healthchecks.txt, "The image's HEALTHCHECK is not inherited").
func (r *Record) fillFrom(img image.Image) error {
	r.ImageID, r.OS = img.ID, img.Config.OS
	c, from := r.Config, img.Config.Config
	if len(c.Entrypoint) == 0 {
		if len(c.Cmd) == 0 {
			c.Cmd = slices.Clone(strslice.StrSlice(from.Cmd))
		}
		c.Entrypoint = slices.Clone(strslice.StrSlice(from.Entrypoint))
	} else if len(c.Entrypoint) == 1 && c.Entrypoint[0] == "" {
		c.Entrypoint = nil // `run --entrypoint ""` clears the image's
	}
	r.Args = append(slices.Clone([]string(c.Entrypoint)), c.Cmd...)
	if len(r.Args) == 0 {
		return invalid("no command specified: image %s has none of its own", r.Image)
	}
	c.Env = mergeEnv(from.Env, c.Env)
	if c.WorkingDir == "" {
		c.WorkingDir = from.WorkingDir
	}
	if c.User == "" {
		c.User = from.User
	}
	if c.StopSignal == "" {
		c.StopSignal = from.StopSignal
	}
	labels := make(map[string]string)
	for name, value := range from.Labels {
		// An image's word on health or jails is no more inherited than its
		// HEALTHCHECK.
		if !strings.HasPrefix(name, "satl.") {
			labels[name] = value
		}
	}
	maps.Copy(labels, c.Labels)
	c.Labels = labels
	return nil
}

// defaultPath is the PATH of a container whose image and spec give none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// mergeEnv lays the spec's environment over the image's. A name without "="
// removes the variable, as in Docker.
func mergeEnv(base, over []string) []string {
	out := []string{}
	index := map[string]int{}
	put := func(kv string) {
		name, set := envName(kv)
		if at, ok := index[name]; ok {
			if set {
				out[at] = kv
			} else {
				out = slices.Delete(out, at, at+1)
				delete(index, name)
				for k, i := range index {
					if i > at {
						index[k] = i - 1
					}
				}
			}
			return
		}
		if set {
			index[name] = len(out)
			out = append(out, kv)
		}
	}
	for _, kv := range base {
		put(kv)
	}
	for _, kv := range over {
		put(kv)
	}
	if _, ok := index["PATH"]; !ok {
		out = append([]string{"PATH=" + defaultPath}, out...)
	}
	return out
}

func envName(kv string) (name string, set bool) {
	for i := range len(kv) {
		if kv[i] == '=' {
			return kv[:i], true
		}
	}
	return kv, false
}
