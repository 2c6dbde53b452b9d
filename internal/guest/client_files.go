package guest

import (
	"context"
	"io"
	"strings"

	bailey "github.com/bailey-sandbox/bailey"
)

// checkPath refuses what the protocol cannot carry.
func checkPath(what string, paths ...string) error {
	for _, p := range paths {
		if p == "" || p[0] != '/' || len(p) > MaxPath || strings.IndexByte(p, 0) >= 0 {
			return bailey.Errorf(bailey.CodeUsage, what, "give an absolute path of at most 4096 bytes without NUL", "%.64q is not one", p)
		}
	}
	return nil
}

// fileEmpty does a file request whose answer is empty.
func (c *Client) fileEmpty(ctx context.Context, what string, m *fileMsg) error {
	if err := checkPath(what, m.path); err != nil {
		return err
	}
	b, err := c.streamed(ctx, what, m, nil, nil)
	if err == nil && len(b) != 0 {
		return c.broken(what, errMessage)
	}
	return err
}

// streamed does a request with data: what src gives is sent, and take reads
// what comes. take's error ends the request.
func (c *Client) streamed(ctx context.Context, what string, m *fileMsg, src io.Reader, take func(*inbound) error) ([]byte, error) {
	k := &call{}
	if take != nil {
		k.in = newInbound(c)
	}
	if src != nil {
		k.out = newOutbound()
	}
	req, err := c.begin(what, k)
	if err != nil {
		return nil, err
	}
	typ, put := frameFile, m.put
	switch m.op {
	case opExecs:
		typ, put = frameExecs, nil
	case opProcesses:
		typ, put = frameProcesses, nil
	}
	if k.in != nil {
		k.in.req = req
	}
	c.l.send(typ, req, put)
	stop := context.AfterFunc(ctx, func() {
		if k.in != nil {
			k.in.finish(ctx.Err())
		}
		if k.out != nil {
			k.out.finish()
		}
	})
	defer stop()
	if src != nil {
		if err := c.feed(req, k, src); err != nil {
			c.abandon(req)
			return nil, err
		}
	}
	if take != nil {
		if err := take(k.in); err != nil {
			c.abandon(req)
			if err == errMessage || err == io.ErrUnexpectedEOF && ctx.Err() == nil && c.Err() == nil {
				return nil, c.broken(what, errMessage)
			}
			return nil, failed(what, err)
		}
	}
	b, fds, err := c.wait(ctx, req, k)
	closeAll(fds)
	return b, failed(what, err)
}

// feed sends what src gives. It stops early, without an error, when the
// request was answered meanwhile: the answer says why.
func (c *Client) feed(req uint32, k *call, src io.Reader) error {
	buf := make([]byte, maxChunk)
	for {
		n, err := src.Read(buf)
		for p := buf[:n]; len(p) > 0; {
			k := k.out.take(len(p))
			if k == 0 {
				return nil
			}
			if err := c.l.sendPaced(frameChunk, req, func(b []byte) []byte { return append(b, p[:k]...) }); err != nil {
				return nil // the receiving end reports it
			}
			p = p[k:]
		}
		if err == io.EOF {
			c.l.send(frameChunk, req, nil)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// ReadFile reads a regular file as it comes. The reader must be closed; its
// error after the data is the request's.
func (c *Client) ReadFile(ctx context.Context, path string, opt ReadOptions) (io.ReadCloser, FileInfo, error) {
	what := "read a file in the sandbox"
	if err := checkPath(what, path); err != nil {
		return nil, FileInfo{}, err
	}
	if opt.Offset < 0 || opt.Length < 0 {
		return nil, FileInfo{}, bailey.Errorf(bailey.CodeUsage, what, "", "a negative offset or length makes no sense")
	}
	r := &fileReader{c: c, ctx: ctx, call: &call{in: newInbound(c)}}
	req, err := c.begin(what, r.call)
	if err != nil {
		return nil, FileInfo{}, err
	}
	r.req, r.call.in.req = req, req
	m := &fileMsg{op: opRead, path: path, user: opt.User, offset: opt.Offset, length: opt.Length}
	r.stop = context.AfterFunc(ctx, func() { r.call.in.finish(ctx.Err()) })
	c.l.send(frameFile, req, m.put)
	var info FileInfo
	if err := r.call.in.record(func(b *reader) { info = b.info() }); err != nil {
		r.Close()
		if err == errMessage || err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil, FileInfo{}, c.broken(what, errMessage)
		}
		return nil, FileInfo{}, failed(what, err)
	}
	return r, info, nil
}

// fileReader is a file being read.
type fileReader struct {
	c    *Client
	ctx  context.Context
	call *call
	req  uint32
	stop func() bool
}

func (r *fileReader) Read(p []byte) (int, error) {
	n, err := r.call.in.Read(p)
	if err != nil && err != io.EOF {
		err = failed("read a file in the sandbox", err)
	}
	return n, err
}

func (r *fileReader) Close() error {
	r.stop()
	r.c.abandon(r.req)
	r.call.in.finish(errLinkClosed)
	return nil
}

// WriteFile replaces a file with what r gives, all or nothing: until it is
// complete, whoever looks sees what was there before.
func (c *Client) WriteFile(ctx context.Context, path string, r io.Reader, opt WriteOptions) (Written, error) {
	what := "write a file in the sandbox"
	if err := checkPath(what, path); err != nil {
		return Written{}, err
	}
	m := &fileMsg{op: opWrite, path: path, user: opt.User, owner: opt.Owner, mode: opt.Mode & 0o7777}
	if opt.Parents {
		m.flags |= fileParents
	}
	b, err := c.streamed(ctx, what, m, r, nil)
	if err != nil {
		return Written{}, err
	}
	w, err := parseWritten(b)
	if err != nil {
		return Written{}, c.broken(what, err)
	}
	return w, nil
}

// records does a request that answers with a stream of records.
func (c *Client) records(ctx context.Context, what string, m *fileMsg, parse func(*reader) func() error) error {
	b, err := c.streamed(ctx, what, m, nil, func(in *inbound) error {
		for {
			var each func() error
			err := in.record(func(r *reader) { each = parse(r) })
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			if err := each(); err != nil {
				return err
			}
		}
	})
	if err == nil && len(b) != 0 {
		return c.broken(what, errMessage)
	}
	return err
}

// List gives what is in a folder to each, in the order of the folder, which is
// none; links are not followed. each's error ends the listing and is returned.
// Folders deeper than MaxDepth, where that many levels were asked for, end it
// with code usage and ENAMETOOLONG as cause, after what could be listed.
func (c *Client) List(ctx context.Context, path string, opt ListOptions, each func(FileInfo) error) error {
	what := "list a folder in the sandbox"
	if err := checkPath(what, path); err != nil {
		return err
	}
	if opt.Depth < 0 || opt.Depth > MaxDepth {
		return bailey.Errorf(bailey.CodeUsage, what, "use 1 to 256", "a depth of %d is out of range", opt.Depth)
	}
	m := &fileMsg{op: opList, path: path, user: opt.User, depth: uint32(opt.Depth)}
	return c.records(ctx, what, m, func(r *reader) func() error {
		i := r.info()
		return func() error { return each(i) }
	})
}

func (c *Client) stat(ctx context.Context, op fileKind, path string, user *User) (FileInfo, error) {
	what := "look at a file in the sandbox"
	if err := checkPath(what, path); err != nil {
		return FileInfo{}, err
	}
	b, err := c.streamed(ctx, what, &fileMsg{op: op, path: path, user: user}, nil, nil)
	if err != nil {
		return FileInfo{}, err
	}
	r := reader{b: b}
	i := r.info()
	if err := r.done(); err != nil {
		return FileInfo{}, c.broken(what, err)
	}
	return i, nil
}

// Stat looks at a file, through symbolic links.
func (c *Client) Stat(ctx context.Context, path string, user *User) (FileInfo, error) {
	return c.stat(ctx, opStat, path, user)
}

// Lstat looks at a file and does not follow it if it is a symbolic link.
func (c *Client) Lstat(ctx context.Context, path string, user *User) (FileInfo, error) {
	return c.stat(ctx, opLstat, path, user)
}

// Mkdir makes a folder; with parents also those above it, and it is no error
// when it is there. mode 0 is 0755.
func (c *Client) Mkdir(ctx context.Context, path string, mode uint32, parents bool, user *User) error {
	m := &fileMsg{op: opMkdir, path: path, mode: mode & 0o7777, user: user}
	if parents {
		m.flags |= fileParents
	}
	return c.fileEmpty(ctx, "make a folder in the sandbox", m)
}

// Rename moves a file or folder within one file system, over what is there.
func (c *Client) Rename(ctx context.Context, from, to string, user *User) error {
	what := "move a file in the sandbox"
	if err := checkPath(what, to); err != nil {
		return err
	}
	return c.fileEmpty(ctx, what, &fileMsg{op: opRename, path: from, to: to, user: user})
}

// Remove removes a file, or an empty folder, or with recursive a folder and
// all in it. A symbolic link is removed itself.
func (c *Client) Remove(ctx context.Context, path string, recursive bool, user *User) error {
	m := &fileMsg{op: opRemove, path: path, user: user}
	if recursive {
		m.flags |= fileRecursive
	}
	return c.fileEmpty(ctx, "remove a file in the sandbox", m)
}

// Readlink gives what a symbolic link says.
func (c *Client) Readlink(ctx context.Context, path string, user *User) (string, error) {
	what := "read a link in the sandbox"
	if err := checkPath(what, path); err != nil {
		return "", err
	}
	b, err := c.streamed(ctx, what, &fileMsg{op: opReadlink, path: path, user: user}, nil, nil)
	if err != nil {
		return "", err
	}
	r := reader{b: b}
	s := r.str(MaxPath)
	if err := r.done(); err != nil {
		return "", c.broken(what, err)
	}
	return s, nil
}

// Watch calls each with what happens at and below path until ctx ends, each
// gives an error, or the path itself goes (then it returns nil). ready, if not
// nil, is called once the watch is in place.
func (c *Client) Watch(ctx context.Context, path string, opt WatchOptions, ready func(), each func(WatchEvent) error) error {
	what := "watch files in the sandbox"
	if err := checkPath(what, path); err != nil {
		return err
	}
	m := &fileMsg{op: opWatch, path: path, user: opt.User}
	if opt.Recursive {
		m.flags |= fileRecursive
	}
	return c.records(ctx, what, m, func(r *reader) func() error {
		e := r.watch()
		return func() error {
			if e.Op == watchReady {
				if ready != nil {
					ready()
				}
				return nil
			}
			return each(e)
		}
	})
}

// TarOut writes the file or folder at path to w as an archive (POSIX pax) with
// names relative to it. Sockets are left out: they mean nothing elsewhere.
// Nothing else is: folders deeper than MaxDepth are an error with code usage
// and ENAMETOOLONG as cause, and what w has got then is no whole archive.
func (c *Client) TarOut(ctx context.Context, path string, w io.Writer, opt TarOptions) error {
	what := "pack files of the sandbox"
	if err := checkPath(what, path); err != nil {
		return err
	}
	m := &fileMsg{op: opTarOut, path: path, user: opt.User}
	if opt.Xattrs {
		m.flags |= fileXattrs
	}
	b, err := c.streamed(ctx, what, m, nil, func(in *inbound) error {
		_, err := io.Copy(w, in)
		return err
	})
	if err == nil && len(b) != 0 {
		return c.broken(what, errMessage)
	}
	return err
}

// TarIn unpacks the archive that r gives into the folder at path. What has the
// name of an entry is replaced. Owners are kept when User is nil and
// bailey-init may set them.
func (c *Client) TarIn(ctx context.Context, path string, r io.Reader, opt TarOptions) error {
	what := "unpack files into the sandbox"
	if err := checkPath(what, path); err != nil {
		return err
	}
	m := &fileMsg{op: opTarIn, path: path, user: opt.User}
	if opt.Xattrs {
		m.flags |= fileXattrs
	}
	b, err := c.streamed(ctx, what, m, r, nil)
	if err == nil && len(b) != 0 {
		return c.broken(what, errMessage)
	}
	return err
}
