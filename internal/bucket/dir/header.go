package dir

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"celld/internal/bucket"
)

// The header is one line of fixed length, so that a reader knows everything
// after one read and a person can look at it with head -n1:
//
//	celld1 <version, 32 hex> <size, 16 hex> <length of the metadata, 8 hex>\n
const (
	magic      = "celld1 "
	versionAt  = len(magic)
	versionLen = 32
	sizeAt     = versionAt + versionLen + 1
	metaAt     = sizeAt + 16 + 1
	headerLen  = metaAt + 8 + 1

	// maxMeta bounds the metadata of one object; cloud stores take 2 to 8 KiB.
	maxMeta = 64 << 10
)

// errCorrupt: the file is not one that this package wrote, or not all of it is there.
var errCorrupt = errors.New("the file is not a whole object; a disk or a person damaged it")

type header struct {
	version bucket.Version
	size    int64
	metaLen int64
}

// bodyAt is where the bytes of the object begin in the file.
func (h header) bodyAt() int64 { return int64(headerLen) + h.metaLen }

func newVersion() bucket.Version {
	var raw [versionLen / 2]byte
	rand.Read(raw[:]) // never fails
	return bucket.Version(hex.EncodeToString(raw[:]))
}

func (h header) append(b []byte) []byte {
	return fmt.Appendf(b, magic+"%s %016x %08x\n", h.version, h.size, h.metaLen)
}

func parseHeader(b []byte) (header, error) {
	if len(b) < headerLen || string(b[:versionAt]) != magic || b[headerLen-1] != '\n' ||
		b[sizeAt-1] != ' ' || b[metaAt-1] != ' ' {
		return header{}, errCorrupt
	}
	size, ok1 := parseHex(b[sizeAt : metaAt-1])
	metaLen, ok2 := parseHex(b[metaAt : headerLen-1])
	if !ok1 || !ok2 || size < 0 || metaLen > maxMeta {
		return header{}, errCorrupt
	}
	return header{bucket.Version(b[versionAt : sizeAt-1]), size, metaLen}, nil
}

func parseHex(b []byte) (n int64, ok bool) {
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | int64(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | int64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return n, true
}

func encodeMeta(meta map[string]string) ([]byte, error) {
	if len(meta) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(meta)
	if err == nil && len(b) > maxMeta {
		err = fmt.Errorf("metadata of %d bytes is larger than %d", len(b), maxMeta)
	}
	return b, err
}

func decodeMeta(b []byte) (meta map[string]string, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	if json.Unmarshal(b, &meta) != nil {
		return nil, errCorrupt
	}
	return meta, nil
}
