package listen

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/bailey-sandbox/bailey"
)

// SocketName is the socket's name in the data folder.
const SocketName = "bailey.sock"

// Unix listens on the data folder's socket, in the place of one that a daemon
// before has left. The socket has mode 0600 from its first moment: it is made in a
// folder that nobody else can enter. Closing the listener leaves it, so that clients
// can tell a daemon that restarts from none; Remove takes it away.
func Unix(home string) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) {
		return nil, bailey.Errorf(bailey.CodeStorage, "listen on "+filepath.Join(home, SocketName), "see that the data folder is yours", "%w", err)
	}
	private, err := os.MkdirTemp(home, ".socket-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(private)
	dir, err := os.Open(private)
	if err != nil {
		return fail(err)
	}
	defer dir.Close()
	place := filepath.Join(private, SocketName)
	if runtime.GOOS == "linux" { // where the path of a socket may have 107 bytes only
		place = filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), SocketName)
	}
	l, err := net.Listen("unix", place)
	if err != nil {
		return fail(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	made := filepath.Join(private, SocketName)
	if err = os.Chmod(made, 0o600); err == nil {
		err = os.Rename(made, filepath.Join(home, SocketName))
	}
	if err != nil {
		l.Close()
		return fail(err)
	}
	return l, nil
}

// Remove takes the socket away: whoever looks for it finds that there is no daemon.
func Remove(home string) error {
	err := os.Remove(filepath.Join(home, SocketName))
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
