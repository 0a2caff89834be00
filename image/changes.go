// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/sys/signal"
)

// changeCommands are the Dockerfile instructions that applyChanges knows.
var changeCommands = []string{"CMD", "ENTRYPOINT", "ENV", "EXPOSE", "LABEL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}

// applyChanges applies Dockerfile instructions to an image's config, as
// `docker import --change` does. Instructions other than changeCommands, and
// anything that is not well-formed, are ErrInvalidArgument.
func applyChanges(c *v1.Config, changes []string) error {
	for _, change := range changes {
		for line := range strings.SplitSeq(strings.ReplaceAll(change, "\\\n", ""), "\n") {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if err := applyChange(c, line); err != nil {
				return err
			}
		}
	}
	return nil
}

func applyChange(c *v1.Config, line string) error {
	if strings.ContainsRune(line, 0) {
		return errInvalid("change %q holds a NUL", line)
	}
	name, rest := line, ""
	if i := strings.IndexAny(line, " \t"); i >= 0 {
		name, rest = line[:i], strings.TrimSpace(line[i:])
	}
	instruction := strings.ToUpper(name)
	if !slices.Contains(changeCommands, instruction) {
		return errInvalid("%s is not a valid change command", name)
	}
	if rest == "" {
		return errInvalid("%s requires at least one argument", instruction)
	}
	switch instruction {
	case "CMD", "ENTRYPOINT":
		args, err := commandForm(instruction, rest)
		if err != nil {
			return err
		}
		if instruction == "CMD" {
			c.Cmd = args
		} else {
			c.Entrypoint = args
		}
		return nil
	case "ENV":
		return eachPair(c, instruction, rest, func(k, v string) { c.Env = setEnv(c.Env, k, v) })
	case "LABEL":
		return eachPair(c, instruction, rest, func(k, v string) {
			if c.Labels == nil {
				c.Labels = map[string]string{}
			}
			c.Labels[k] = v
		})
	case "EXPOSE":
		return addPorts(c, rest)
	case "VOLUME":
		return addVolumes(c, rest)
	}
	return setWord(c, instruction, rest)
}

// commandForm reads CMD and ENTRYPOINT: a JSON array of strings, or a command
// line for /bin/sh -c. What begins with a bracket has to be an array; Docker
// would hand a mistyped one to the shell.
func commandForm(instruction, rest string) ([]string, error) {
	if !strings.HasPrefix(rest, "[") {
		return []string{"/bin/sh", "-c", rest}, nil
	}
	args, ok := stringArray(rest)
	if !ok {
		return nil, errInvalid("%s: %s is not a JSON array of strings", instruction, rest)
	}
	return args, nil
}

func stringArray(s string) ([]string, bool) {
	var raw []any // a null is not a string either
	if json.Unmarshal([]byte(s), &raw) != nil {
		return nil, false
	}
	args := make([]string, len(raw))
	for i, v := range raw {
		word, ok := v.(string)
		if !ok || strings.ContainsRune(word, 0) {
			return nil, false
		}
		args[i] = word
	}
	return args, true
}

// eachPair reads key=value words, or the old form of one key and a value that
// is the rest of the line. Variables have the values from before the line.
func eachPair(c *v1.Config, instruction, rest string, set func(k, v string)) error {
	words, err := splitWords(rest)
	if err != nil {
		return errInvalid("%s: %v", instruction, err)
	}
	if !strings.Contains(words[0], "=") {
		value := strings.TrimSpace(strings.TrimPrefix(rest, words[0]))
		if value == "" {
			return errInvalid("%s must have two arguments", instruction)
		}
		words = []string{words[0] + "=" + value}
	}
	env := slices.Clone(c.Env)
	for _, w := range words {
		if err := setPair(env, instruction, w, set); err != nil {
			return err
		}
	}
	return nil
}

func setPair(env []string, instruction, word string, set func(k, v string)) error {
	k, v, ok := strings.Cut(word, "=")
	if !ok {
		return errInvalid("%s: syntax error - can't find = in %q. Must be of the form: name=value", instruction, word)
	}
	key, err := expandWord(k, env)
	if err != nil {
		return errInvalid("%s: %v", instruction, err)
	}
	value, err := expandWord(v, env)
	if err != nil {
		return errInvalid("%s: %v", instruction, err)
	}
	if key == "" {
		return errInvalid("%s names can not be blank", instruction)
	}
	if strings.ContainsRune(key+value, 0) || instruction == "ENV" && strings.Contains(key, "=") {
		return errInvalid("%s: %q is no valid name or value", instruction, word)
	}
	set(key, value)
	return nil
}

func setEnv(env []string, key, value string) []string {
	for i, e := range env {
		if k, _, _ := strings.Cut(e, "="); k == key {
			env[i] = key + "=" + value
			return env
		}
	}
	return append(env, key+"="+value)
}

func expandedWords(c *v1.Config, instruction, rest string) ([]string, error) {
	words, err := splitWords(rest)
	if err != nil {
		return nil, errInvalid("%s: %v", instruction, err)
	}
	for i := range words {
		if words[i], err = expandWord(words[i], c.Env); err != nil {
			return nil, errInvalid("%s: %v", instruction, err)
		}
		if words[i] == "" || strings.ContainsRune(words[i], 0) {
			return nil, errInvalid("%s: an argument is empty or holds a NUL", instruction)
		}
	}
	return words, nil
}

// setWord sets what takes exactly one argument.
func setWord(c *v1.Config, instruction, rest string) error {
	words, err := expandedWords(c, instruction, rest)
	if err != nil {
		return err
	}
	if len(words) != 1 {
		return errInvalid("%s requires exactly one argument", instruction)
	}
	word := words[0]
	switch instruction {
	case "STOPSIGNAL":
		if _, err := signal.ParseSignal(word); err != nil {
			return errInvalid("STOPSIGNAL: %v", err)
		}
		c.StopSignal = word
	case "USER":
		c.User = word
	case "WORKDIR":
		if !path.IsAbs(word) {
			word = path.Join("/", c.WorkingDir, word)
		}
		c.WorkingDir = path.Clean(word)
	}
	return nil
}

func addVolumes(c *v1.Config, rest string) error {
	words, isArray := stringArray(rest)
	if !isArray {
		var err error
		if words, err = expandedWords(c, "VOLUME", rest); err != nil {
			return err
		}
	}
	for _, w := range words {
		w = strings.TrimSpace(w)
		if !path.IsAbs(w) {
			return errInvalid("VOLUME: %q is not an absolute path", w)
		}
		if c.Volumes == nil {
			c.Volumes = map[string]struct{}{}
		}
		c.Volumes[path.Clean(w)] = struct{}{}
	}
	return nil
}

func addPorts(c *v1.Config, rest string) error {
	words, err := expandedWords(c, "EXPOSE", rest)
	if err != nil {
		return err
	}
	for _, w := range words {
		ports, err := portRange(w)
		if err != nil {
			return err
		}
		for _, p := range ports {
			if c.ExposedPorts == nil {
				c.ExposedPorts = map[string]struct{}{}
			}
			c.ExposedPorts[p] = struct{}{}
		}
	}
	return nil
}

// portRange reads 80, 80/udp and 8000-8010/tcp.
func portRange(s string) ([]string, error) {
	numbers, proto, ok := strings.Cut(s, "/")
	if !ok {
		proto = "tcp"
	}
	proto = strings.ToLower(proto)
	first, last, ranged := strings.Cut(numbers, "-")
	if !ranged {
		last = first
	}
	lo, err1 := strconv.ParseUint(first, 10, 16)
	hi, err2 := strconv.ParseUint(last, 10, 16)
	if err1 != nil || err2 != nil || lo == 0 || hi < lo || !slices.Contains([]string{"tcp", "udp", "sctp"}, proto) {
		return nil, errInvalid("EXPOSE: invalid port %q", s)
	}
	var ports []string
	for p := lo; p <= hi; p++ {
		ports = append(ports, strconv.FormatUint(p, 10)+"/"+proto)
	}
	return ports, nil
}
