// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"satld/platform"
)

// systems are the operating systems whose images run here, the preferred
// first. FreeBSD runs Linux binaries as well.
func systems() []string {
	if platform.OS == "freebsd" {
		return []string{"freebsd", "linux"}
	}
	return []string{"linux"}
}

// wanted is what messages say that is looked for: "linux/amd64".
func wanted() string {
	var all []string
	for _, os := range systems() {
		all = append(all, os+"/"+runtime.GOARCH)
	}
	return strings.Join(all, " or ")
}

// choose picks the manifest of an index for this platform.
func choose(manifests []v1.Descriptor) (v1.Descriptor, bool) {
	for _, os := range systems() {
		for _, m := range manifests {
			if m.Platform != nil && m.Platform.OS == os && m.Platform.Architecture == runtime.GOARCH &&
				(m.MediaType == "" || m.MediaType.IsImage() || m.MediaType.IsIndex()) {
				return m, true
			}
		}
	}
	return v1.Descriptor{}, false
}

// runsHere refuses the image of a system that cannot run here. As with
// Docker, the architecture is not looked at: an emulator may be there.
func runsHere(c v1.ConfigFile) error {
	if c.OS == "" || slices.Contains(systems(), c.OS) {
		return nil
	}
	return errInvalid("cannot load %s image on %s", c.OS, platform.OS)
}
