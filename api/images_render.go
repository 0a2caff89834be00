// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/docker/docker/api/types/container"
	imagetypes "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/storage"
	"github.com/docker/docker/api/types/versions"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"satld/image"
)

// imagePlatform is what an image runs on.
func imagePlatform(img image.Image) ocispec.Platform {
	return ocispec.Platform{OS: img.Config.OS, Architecture: img.Config.Architecture, Variant: img.Config.Variant, OSVersion: img.Config.OSVersion}
}

// imageSummary renders one entry of a list, with the tags and digests it is
// shown by.
func imageSummary(img image.Image, tags, digests []string) *imagetypes.Summary {
	return &imagetypes.Summary{
		ID: img.ID, RepoTags: tags, RepoDigests: digests, Created: unixOrZero(img.Created), Size: img.Size,
		SharedSize: -1, Containers: -1, Labels: img.Config.Config.Labels,
	}
}

// unixOrZero is a time in seconds; no time is 0.
func unixOrZero(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// forVersion gives a summary the shape of the version that r is answered in.
func forVersion(r *http.Request, sum *imagetypes.Summary) {
	if !since(r, "1.43") && len(sum.RepoTags) == 0 && len(sum.RepoDigests) == 0 {
		sum.RepoTags, sum.RepoDigests = []string{"<none>:<none>"}, []string{"<none>@<none>"}
	}
	if since(r, "1.43") {
		sum.RepoTags, sum.RepoDigests = emptyNotNull(sum.RepoTags), emptyNotNull(sum.RepoDigests)
	}
	if !since(r, "1.44") {
		sum.VirtualSize = sum.Size
	}
}

func emptyNotNull(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// imageDocument is what an image inspect answers with. Config is Docker's
// with, for each API version, the fields it has even when they are empty.
type imageDocument struct {
	*imagetypes.InspectResponse
	Config map[string]any
}

// Fields of an image's Config that are always there, by API version.
var (
	configFields = map[string]any{"Cmd": nil, "Entrypoint": nil, "Env": nil, "Labels": nil, "OnBuild": nil, "User": "", "Volumes": nil, "WorkingDir": ""}
	// Before 1.50.
	oldConfigFields = map[string]any{"AttachStderr": false, "AttachStdin": false, "AttachStdout": false, "Domainname": "",
		"Hostname": "", "Image": "", "OpenStdin": false, "StdinOnce": false, "Tty": false}
)

// imageJSON renders `docker image inspect` for one version of the API.
func imageJSON(img image.Image, version string) (*imageDocument, error) {
	raw, err := json.Marshal(img.Config.Config)
	if err != nil {
		return nil, fmt.Errorf("render config of image %s: %w", img.ID, err)
	}
	var config map[string]any
	if err := json.Unmarshal(raw, &config); err != nil {
		return nil, fmt.Errorf("render config of image %s: %w", img.ID, err)
	}
	for field, empty := range configFields {
		if _, ok := config[field]; !ok {
			config[field] = empty
		}
	}
	if versions.LessThan(version, "1.50") {
		for field, empty := range oldConfigFields {
			if _, ok := config[field]; !ok {
				config[field] = empty
			}
		}
	} else {
		// Not the image specification's, and so gone since 1.50.
		maps.DeleteFunc(config, func(field string, _ any) bool { _, old := oldConfigFields[field]; return old })
	}
	out := &imagetypes.InspectResponse{
		ID: img.ID, RepoTags: emptyNotNull(img.RepoTags), RepoDigests: emptyNotNull(img.RepoDigests),
		DockerVersion: img.Config.DockerVersion, Author: img.Config.Author,
		Architecture: img.Config.Architecture, Variant: img.Config.Variant, Os: img.Config.OS, OsVersion: img.Config.OSVersion,
		Size:        img.Size,
		GraphDriver: storage.DriverData{Name: storageDriver},
		RootFS:      imagetypes.RootFS{Type: cmp.Or(img.Config.RootFS.Type, "layers")},
	}
	if n := len(img.Config.History); n > 0 {
		out.Comment = img.Config.History[n-1].Comment
	}
	for _, id := range img.Config.RootFS.DiffIDs {
		out.RootFS.Layers = append(out.RootFS.Layers, id.String())
	}
	if !img.Created.IsZero() || versions.LessThan(version, "1.44") {
		out.Created = img.Created.UTC().Format(time.RFC3339Nano)
	}
	if versions.LessThan(version, "1.44") {
		out.VirtualSize = img.Size
	}
	if versions.LessThan(version, "1.45") {
		out.Container, out.ContainerConfig = img.Config.Container, &container.Config{}
	}
	return &imageDocument{InspectResponse: out, Config: config}, nil
}

// history renders an image's history, newest first. The sizes of single
// layers are not kept: an image of one layer shows its size there.
func history(img image.Image) []imagetypes.HistoryResponseItem {
	out := []imagetypes.HistoryResponseItem{}
	layers := 0
	for _, h := range img.Config.History {
		item := imagetypes.HistoryResponseItem{ID: "<missing>", Created: unixOrZero(h.Created.Time), CreatedBy: h.CreatedBy, Comment: h.Comment}
		if !h.EmptyLayer {
			layers++
			item.Size = img.Size
		}
		out = append(out, item)
	}
	if layers > 1 {
		for i := range out {
			out[i].Size = 0
		}
	}
	if len(out) == 0 {
		out = append(out, imagetypes.HistoryResponseItem{Created: unixOrZero(img.Created), Size: img.Size})
	}
	slices.Reverse(out)
	out[0].ID, out[0].Tags = img.ID, img.RepoTags
	return out
}
