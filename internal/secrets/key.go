package secrets

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"

	"github.com/bailey-sandbox/bailey"
)

// Variables that say where the key is.
const (
	// EnvKeyFile names an age identity file to use instead of the one in the
	// data folder. It is never made by Bailey.
	EnvKeyFile = "BAILEY_SECRETS_KEY_FILE"
	// EnvPassphraseFile names a file with a passphrase, on one line. A key that
	// is made then is sealed with it (age's scrypt recipient), and a key file
	// that is sealed so is opened with it.
	EnvPassphraseFile = "BAILEY_SECRETS_PASSPHRASE_FILE"
)

const (
	keyFolder = "keys"
	keyName   = "secrets.age-key"
	markName  = "placeholder-mark"
	ageHeader = "age-encryption.org/v1\n"
)

// KeyFile gives the path of the key, whether it exists or not.
func (s *Store) KeyFile() string {
	if s.keyFile != "" {
		return s.keyFile
	}
	return filepath.Join(s.home, keyFolder, keyName)
}

// identity reads the key, and makes it if make is set and there is none.
func (s *Store) identity(create bool) (*age.X25519Identity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key != nil {
		return s.key, nil
	}
	const what = "open the store of secrets"
	text, err := os.ReadFile(s.KeyFile())
	if errors.Is(err, fs.ErrNotExist) && create && s.keyFile == "" {
		text, err = s.makeKey()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bailey.Errorf(bailey.CodeStorage, what, "bring the key back from its backup", "the key %s does not exist", s.KeyFile())
	}
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, what, "", "the key cannot be read: %w", err)
	}
	defer clear(text)
	plain, err := s.openKey(text)
	if err != nil {
		return nil, err
	}
	defer clear(plain)
	ids, err := age.ParseIdentities(bytes.NewReader(plain))
	if err != nil {
		// The parser's text may quote the line, and the line is the key.
		return nil, bailey.Errorf(bailey.CodeStorage, what, "bring the key back from its backup", "%s is no age identity file", s.KeyFile())
	}
	for _, id := range ids {
		if x, ok := id.(*age.X25519Identity); ok {
			s.key = x
			return x, nil
		}
	}
	return nil, bailey.Errorf(bailey.CodeStorage, what, "make one with age-keygen", "%s has no X25519 identity", s.KeyFile())
}

// openKey unseals a key file that is sealed with a passphrase.
func (s *Store) openKey(text []byte) ([]byte, error) {
	if !bytes.HasPrefix(text, []byte(ageHeader)) {
		return bytes.Clone(text), nil
	}
	pass, err := s.passphrase()
	if err != nil {
		return nil, err
	}
	const what, fix = "open the key of the secrets", "name the file with its passphrase in " + EnvPassphraseFile
	if pass == "" {
		return nil, bailey.Errorf(bailey.CodeStorage, what, fix, "%s is sealed with a passphrase", s.KeyFile())
	}
	id, err := age.NewScryptIdentity(pass)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, what, fix, "the passphrase cannot be used")
	}
	r, err := age.Decrypt(bytes.NewReader(text), id)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, what, fix, "the passphrase does not open %s", s.KeyFile())
	}
	return io.ReadAll(io.LimitReader(r, MaxValue))
}

func (s *Store) passphrase() (string, error) {
	if s.passFile == "" {
		return "", nil
	}
	b, err := os.ReadFile(s.passFile)
	if err != nil {
		return "", bailey.Errorf(bailey.CodeStorage, "read the passphrase of the secrets' key", "", "%w", err)
	}
	defer clear(b)
	return string(TrimFinalNewline(b)), nil
}

// makeKey makes the key. Two that do so at once use the one that was first.
func (s *Store) makeKey() ([]byte, error) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, err
	}
	text := fmt.Appendf(nil, "# created: %s\n# public key: %s\n%s\n", time.Now().UTC().Format(time.RFC3339), id.Recipient(), id)
	pass, err := s.passphrase()
	if err != nil {
		return nil, err
	}
	if pass != "" {
		r, err := age.NewScryptRecipient(pass)
		if err != nil {
			return nil, err
		}
		if s.work != 0 {
			r.SetWorkFactor(s.work)
		}
		plain := text
		text, err = sealTo(plain, r)
		clear(plain)
		if err != nil {
			return nil, err
		}
	}
	return s.makeOnce(keyName, text)
}

// makeOnce makes a file of the folder of keys, unless it is there already, and
// gives what is in it.
func (s *Store) makeOnce(name string, text []byte) ([]byte, error) {
	dir := filepath.Join(s.home, keyFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	tmp, err := writeTemp(dir, text)
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp)
	// A link, unlike a rename, never replaces one that is there.
	if err := os.Link(tmp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := syncFolder(dir); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// Mark gives the ten letters that all placeholders of this installation carry,
// so that one of another sandbox is known for what it is. They are no secret.
func (s *Store) Mark() (string, error) {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // 32 letters: 50 bits
	path := filepath.Join(s.home, keyFolder, markName)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		fresh := make([]byte, 10)
		_, _ = rand.Read(fresh) // it never fails
		for i := range fresh {
			fresh[i] = letters[fresh[i]%32]
		}
		b, err = s.makeOnce(markName, append(fresh, '\n'))
	}
	if err != nil {
		return "", bailey.Errorf(bailey.CodeStorage, "read the mark of placeholders", "", "%w", err)
	}
	mark := string(TrimFinalNewline(b))
	if len(mark) != 10 {
		return "", bailey.Errorf(bailey.CodeStorage, "read the mark of placeholders", "remove it: a new one is made", "%s is damaged", path)
	}
	return mark, nil
}

// KeyWarning says who else can read the key, "" if nobody can.
func (s *Store) KeyWarning() string {
	fi, err := os.Stat(s.KeyFile())
	if err != nil || fi.Mode().Perm()&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("the key of the secrets, %s, can be read by others (mode %04o); run: chmod 600 %[1]s", s.KeyFile(), fi.Mode().Perm())
}
