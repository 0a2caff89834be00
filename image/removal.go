// SPDX-License-Identifier: BSD-2-Clause

package image

import "slices"

// user is a container that has an image's layers.
type user struct {
	container string
	mounted   bool
}

// remove decides `docker rmi` (Docker's daemon/images/image_delete.go has the
// same rules and texts): by name it untags, and deletes the image with its
// last name; by ID it deletes the image with its names if these are all of
// one repository. An image that a container has mounted is never deleted,
// though force takes its last name; one that a stopped container uses is only
// by force. users are the containers that use the image.
func (x index) remove(ref string, force bool, users []user) (next index, untagged, deleted []string, err error) {
	id, name, err := x.find(ref)
	if err != nil {
		return x, nil, nil, err
	}
	tags, digests := x.names(id)
	conflict := deleteConflict(id, force, users)

	if name == "" {
		if conflict != nil {
			return x, nil, nil, conflict
		}
		if len(tags)+len(digests) > 0 && !oneRepository(tags, digests) && !force {
			return x, nil, nil, errConflict("conflict: unable to delete %s (must be forced) - image is referenced in multiple repositories", shortID(id))
		}
		return x.drop(id), familiars(append(tags, digests...)), []string{id}, nil
	}

	if !force && oneRepository(tags, digests) && len(users) > 0 {
		return x, nil, nil, errConflict("conflict: unable to remove repository reference %q (must force) - container %s is using its referenced image %s",
			ref, shortID(users[0].container), shortID(id))
	}
	next, untagged = x.unname(name), []string{name}
	isSibling := func(n string) bool { return repository(n) == repository(name) }
	if tags, digests = next.names(id); !slices.ContainsFunc(tags, isSibling) {
		// The last tag of a repository takes the repository's digests with it.
		for _, d := range digests {
			if isSibling(d) {
				next, untagged = next.unname(d), append(untagged, d)
			}
		}
	}
	tags, digests = next.names(id)
	if len(tags)+len(digests) == 0 && conflict == nil {
		next, deleted = next.drop(id), []string{id}
	}
	return next, familiars(untagged), deleted, nil
}

// deleteConflict tells why the image may not be deleted, if so.
func deleteConflict(id string, force bool, users []user) error {
	for _, u := range users {
		if u.mounted {
			return errConflict("conflict: unable to delete %s (cannot be forced) - image is being used by running container %s", shortID(id), shortID(u.container))
		}
	}
	if len(users) > 0 && !force {
		return errConflict("conflict: unable to delete %s (must be forced) - image is being used by stopped container %s", shortID(id), shortID(users[0].container))
	}
	return nil
}

// oneRepository tells whether the names are at most one tag and any digests,
// all of one repository.
func oneRepository(tags, digests []string) bool {
	all := append(slices.Clone(tags), digests...)
	if len(all) == 0 || len(tags) > 1 {
		return false
	}
	return !slices.ContainsFunc(all, func(n string) bool { return repository(n) != repository(all[0]) })
}
