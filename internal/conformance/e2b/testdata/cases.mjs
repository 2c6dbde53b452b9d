// Cases that a program written for E2B's SDK relies on. The package comes by its folder,
// everything else by environment variables, as for any such program. Prints a line of
// JSON for each case: {name, ms, error?}.
import { createRequire } from 'node:module'
import { strict as assert } from 'node:assert'
import { createHash, randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

const sdk = createRequire(import.meta.url)(process.env.SDK)
const { Sandbox } = sdk
const list = []
const test = (name, f) => list.push([name, f])
let box

// until waits for what has to come.
async function until(f, what, ms = 20000) {
  for (const end = Date.now() + ms; Date.now() < end; ) {
    const v = await f()
    if (v) return v
    await sleep(20)
  }
  throw new Error('it did not come: ' + what)
}
const throws = async (p, kind, text) => {
  try { await p } catch (e) {
    assert(e instanceof kind, `${e?.constructor?.name}: ${e?.message} in place of ${kind.name}`)
    if (text) assert.match(e.message, text)
    return e
  }
  throw new Error('nothing was thrown')
}
// where lets what needs several users be refused where there may be one only.
async function where(f) {
  try { await f() } catch (e) {
    if (process.env.USERS === 'many' || !(e instanceof sdk.SandboxError)) throw e
  }
}
// collect gathers all pages of a list.
async function collect(paginator) {
  const all = []
  while (paginator.hasNext) all.push(...await paginator.nextItems())
  return all
}

test('create', async () => {
  box = await Sandbox.create({ timeoutMs: 120000, metadata: { name: 'a b&c=d%', kind: 'conformance' }, envs: { FROM_CREATE: 'yes' } })
  assert.match(box.sandboxId, /^[a-z0-9]+$/)
  assert.equal(await box.isRunning(), true)
})
test('info', async () => {
  const i = await box.getInfo()
  assert.equal(i.sandboxId, box.sandboxId)
  assert.equal(i.metadata.name, 'a b&c=d%')
  assert.equal(Object.keys(i.metadata).length, 2)
  assert.equal(i.state, 'running')
  const left = i.endAt - Date.now()
  assert(left > 60000 && left <= 121000, `ends in ${left} ms`)
})
test('command', async () => {
  const r = await box.commands.run('echo out; echo err >&2; echo "$FROM_CREATE $CALL"', { envs: { CALL: 'this' } })
  assert.equal(r.stdout, 'out\nyes this\n')
  assert.equal(r.stderr, 'err\n')
  assert.equal(r.exitCode, 0)
})
test('command: exit code', async () => {
  const e = await throws(box.commands.run('echo before; exit 3'), sdk.CommandExitError, /exit status 3/)
  assert.equal(e.exitCode, 3)
  assert.equal(e.stdout, 'before\n')
})
test('command: identity of the sandbox', async () => {
  const r = await box.commands.run('echo $E2B_SANDBOX $E2B_SANDBOX_ID; cd; pwd; echo $HOME')
  const [id, home, said] = r.stdout.trim().split('\n')
  assert.equal(id, 'true ' + box.sandboxId)
  assert.equal(home, said)
})
test('command: working folder', async () => {
  assert.equal((await box.commands.run('pwd', { cwd: '/usr' })).stdout, '/usr\n')
  await throws(box.commands.run('pwd', { cwd: '/not/there' }), sdk.InvalidArgumentError, /cwd '\/not\/there' does not exist/)
})
test('command: output is told as it comes', async () => {
  const seen = []
  const h = await box.commands.run('echo first; read x; echo second $x', { background: true, stdin: true, onStdout: d => { seen.push(d) } })
  await until(() => seen.join('').includes('first'), 'output')
  assert(!seen.join('').includes('second'))
  await box.commands.sendStdin(h.pid, 'input\n')
  const r = await h.wait()
  assert.equal(r.stdout, 'first\nsecond input\n')
})
test('command: large output', async () => {
  const r = await box.commands.run('head -c 5000000 /dev/zero | tr "\\0" x')
  assert.equal(r.stdout.length, 5000000)
})
test('command: UTF-8 at every boundary', async () => {
  const r = await box.commands.run('for i in $(seq 2000); do printf "é€😀"; done')
  assert.equal(r.stdout, 'é€😀'.repeat(2000))
})
test('command: input is closed', async () => {
  const h = await box.commands.run('cat; echo end', { background: true, stdin: true })
  await box.commands.sendStdin(h.pid, 'text')
  await box.commands.closeStdin(h.pid)
  assert.equal((await h.wait()).stdout, 'textend\n')
})
test('command: without input', async () => {
  assert.equal((await box.commands.run('cat; echo end')).stdout, 'end\n')
})
test('command: kill', async () => {
  const h = await box.commands.run('sleep 1000 & sleep 1000', { background: true, timeoutMs: 0 })
  assert((await box.commands.list()).some(p => p.pid === h.pid))
  assert.equal((await box.commands.run(`kill -0 ${h.pid} && echo lives`)).stdout, 'lives\n')
  assert.equal(await h.kill(), true)
  const e = await throws(h.wait(), sdk.CommandExitError)
  assert.notEqual(e.exitCode, 0)
  assert.equal(await box.commands.kill(h.pid), false)
  assert(!(await box.commands.list()).some(p => p.pid === h.pid))
})
test('command: connect', async () => {
  const h = await box.commands.run('read x; echo got $x', { background: true, stdin: true, timeoutMs: 0 })
  await h.disconnect()
  const again = await box.commands.connect(h.pid)
  await box.commands.sendStdin(h.pid, 'it\n')
  assert.equal((await again.wait()).stdout, 'got it\n')
  await throws(box.commands.connect(999999), sdk.NotFoundError)
})
test('command: timeout', async () => {
  await throws(box.commands.run('sleep 1000', { timeoutMs: 300 }), sdk.TimeoutError)
  await until(async () => !(await box.commands.list()).some(p => p.args.join(' ').includes('sleep 1000')), 'its end')
})
test('command: another user', async () => {
  await where(async () => assert.equal((await box.commands.run('id -un', { user: 'nobody' })).stdout, 'nobody\n'))
  await throws(box.commands.run('true', { user: 'nobody-of-that-name' }), sdk.AuthenticationError, /invalid username/)
})
test('command: many at once', async () => {
  const all = await Promise.all(Array.from({ length: 20 }, (_, i) => box.commands.run(`echo ${i}`)))
  all.forEach((r, i) => assert.equal(r.stdout, `${i}\n`))
})
test('terminal', async () => {
  let seen = ''
  const h = await box.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: d => { seen += Buffer.from(d).toString() } })
  await box.pty.sendInput(h.pid, Buffer.from('stty size; echo $TERM\n'))
  await until(() => /24 80/.test(seen) && /xterm-256color/.test(seen), 'the size: ' + seen)
  await box.pty.resize(h.pid, { cols: 100, rows: 30 })
  await box.pty.sendInput(h.pid, Buffer.from('stty size\n'))
  await until(() => /30 100/.test(seen), 'the new size')
  await box.pty.sendInput(h.pid, Buffer.from('exit\n'))
  assert.equal((await h.wait()).exitCode, 0)
})
test('files: text', async () => {
  const i = await box.files.write('/tmp/new/folder/a.txt', 'häh\n')
  assert.equal(i.path, '/tmp/new/folder/a.txt')
  assert.equal(i.name, 'a.txt')
  assert.equal(i.type, 'file')
  assert.equal(await box.files.read('/tmp/new/folder/a.txt'), 'häh\n')
  await box.files.write('/tmp/new/folder/a.txt', 'short')
  assert.equal(await box.files.read('/tmp/new/folder/a.txt'), 'short')
})
for (const size of [0, 1, 18 << 10, 5 << 20]) {
  test(`files: ${size} bytes`, async () => {
    const data = randomBytes(size)
    await box.files.write('/tmp/data', new Blob([data]))
    const back = await box.files.read('/tmp/data', { format: 'bytes' })
    assert.equal(Buffer.compare(Buffer.from(back), data), 0)
    const sum = (await box.commands.run('sha256sum /tmp/data')).stdout.split(' ')[0]
    assert.equal(sum, createHash('sha256').update(data).digest('hex'))
  })
}
test('files: several at once', async () => {
  const done = await box.files.write([{ path: '/tmp/m/one', data: '1' }, { path: '/tmp/m/deep/two', data: '22' }])
  assert.deepEqual(done.map(f => f.path), ['/tmp/m/one', '/tmp/m/deep/two'])
  assert.equal(await box.files.read('/tmp/m/deep/two'), '22')
})
test('files: below home', async () => {
  const home = (await box.commands.run('printf %s "$HOME"')).stdout
  const i = await box.files.write('relative.txt', 'x')
  assert.equal(i.path, home + '/relative.txt')
  assert.equal(await box.files.read('~/relative.txt'), 'x')
})
test('files: of the system', async () => {
  assert.match(await box.files.read('/proc/self/status'), /Name:/)
})
test('files: missing and folders', async () => {
  await throws(box.files.read('/tmp/not-there'), sdk.NotFoundError, /does not exist/)
  await throws(box.files.read('/tmp'), sdk.InvalidArgumentError, /is a directory/)
  assert.equal(await box.files.exists('/tmp/not-there'), false)
  assert.equal(await box.files.exists('/tmp/new/folder/a.txt'), true)
})
test('files: folders', async () => {
  assert.equal(await box.files.makeDir('/tmp/d/e/f'), true)
  assert.equal(await box.files.makeDir('/tmp/d/e/f'), false)
  await box.files.write('/tmp/d/b', 'b')
  assert.deepEqual((await box.files.list('/tmp/d')).map(e => [e.name, e.type]), [['b', 'file'], ['e', 'dir']])
  assert.deepEqual((await box.files.list('/tmp/d', { depth: 2 })).map(e => e.path), ['/tmp/d/b', '/tmp/d/e', '/tmp/d/e/f'])
  await throws(box.files.list('/tmp/d/b'), sdk.InvalidArgumentError)
  await throws(box.files.list('/tmp/nowhere'), sdk.NotFoundError)
})
test('files: what is known of them', async () => {
  await box.files.write('/tmp/i', 'four')
  await box.commands.run('chmod 640 /tmp/i; ln -sf /tmp/i /tmp/link')
  const i = await box.files.getInfo('/tmp/i')
  assert.equal(i.size, 4)
  assert.equal(i.mode, 0o640)
  assert.equal(i.permissions, '-rw-r-----')
  assert.equal(i.owner, (await box.commands.run('id -un')).stdout.trim())
  assert(Math.abs(i.modifiedTime - Date.now()) < 60000)
  const l = await box.files.getInfo('/tmp/link')
  assert.equal(l.symlinkTarget, '/tmp/i')
  assert.equal(l.type, 'file')
})
test('files: move and remove', async () => {
  await box.files.write('/tmp/from', 'x')
  const i = await box.files.rename('/tmp/from', '/tmp/to/there')
  assert.equal(i.path, '/tmp/to/there')
  assert.equal(await box.files.exists('/tmp/from'), false)
  await box.files.remove('/tmp/to')
  await box.files.remove('/tmp/to')
  assert.equal(await box.files.exists('/tmp/to/there'), false)
  await throws(box.files.rename('/tmp/nothing', '/tmp/x'), sdk.NotFoundError)
})
test('files: for another user', async () => {
  await where(async () => {
    await box.files.write('/tmp/theirs/x', 'x', { user: 'nobody' })
    assert.equal((await box.files.getInfo('/tmp/theirs/x')).owner, 'nobody')
  })
})
test('files: watch', async () => {
  await box.files.makeDir('/tmp/w')
  const seen = []
  const w = await box.files.watchDir('/tmp/w', e => { seen.push(e) }, { recursive: true })
  await box.files.write('/tmp/w/sub/new', 'x')
  await until(() => seen.some(e => e.type === sdk.FilesystemEventType.CREATE && e.name.startsWith('sub')), 'an event')
  await box.files.remove('/tmp/w/sub')
  await until(() => seen.some(e => e.type === sdk.FilesystemEventType.REMOVE), 'the removal')
  await w.stop()
  await throws(box.files.watchDir('/tmp/not-there', () => {}), sdk.NotFoundError)
})
test('files: signed URLs', async () => {
  const up = await box.uploadUrl('/tmp/signed')
  const form = new FormData()
  form.append('file', new Blob(['by url']), 'signed')
  // Without a domain of the daemon's, a signature alone says which sandbox it is of.
  const put = await fetch(up, { method: 'POST', body: form })
  assert.equal(put.status, 200, await put.clone().text())
  assert.equal(await (await fetch(await box.downloadUrl('/tmp/signed'))).text(), 'by url')
  const late = await box.downloadUrl('/tmp/signed', { useSignatureExpiration: -10 })
  assert.equal((await fetch(late)).status, 401)
  assert.equal((await fetch((await box.downloadUrl('/tmp/signed')).replace('signed', 'other'))).status, 401)
})
test('list', async () => {
  const all = await collect(Sandbox.list({ query: { metadata: { name: 'a b&c=d%' } } }))
  assert.deepEqual(all.map(s => s.sandboxId), [box.sandboxId])
  assert.equal((await collect(Sandbox.list({ query: { metadata: { name: 'else' } } }))).length, 0)
  assert.equal((await collect(Sandbox.list({ query: { metadata: { kind: 'conformance' }, state: ['paused'] } }))).length, 0)
})
test('list by pages', async () => {
  const more = await Promise.all([1, 2].map(() => Sandbox.create({ metadata: { kind: 'paged' } })))
  try {
    const p = Sandbox.list({ limit: 1, query: { metadata: { kind: 'paged' } } })
    const one = await p.nextItems()
    assert.equal(one.length, 1)
    assert.equal(p.hasNext, true)
    const two = await p.nextItems()
    assert.deepEqual([...one, ...two].map(s => s.sandboxId).sort(), more.map(s => s.sandboxId).sort())
  } finally {
    await Promise.all(more.map(s => s.kill()))
  }
})
test('timeout', async () => {
  await box.setTimeout(300000)
  const i = await box.getInfo()
  assert(i.endAt - Date.now() > 250000)
  const short = await Sandbox.create({ timeoutMs: 60000 })
  await short.setTimeout(1000)
  await until(async () => !(await short.isRunning()), 'its end')
  await throws(short.commands.run('true'), sdk.SandboxError)
})
test('pause and connect', async () => {
  const h = await box.commands.run('read x; echo woke $x', { background: true, stdin: true, timeoutMs: 0 })
  await h.disconnect()
  await box.files.write('/tmp/kept', 'kept')
  await box.pause()
  assert.equal(await box.isRunning(), false)
  assert.equal((await Sandbox.getInfo(box.sandboxId)).state, 'paused')
  const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 120000 })
  assert.equal(await again.files.read('/tmp/kept'), 'kept')
  const c = await again.commands.connect(h.pid)
  await again.commands.sendStdin(h.pid, 'up\n')
  assert.equal((await c.wait()).stdout, 'woke up\n')
  assert.equal((await box.commands.run('echo same handle')).stdout, 'same handle\n')
})
test('pause twice', async () => {
  assert.notEqual(await box.pause(), false)
  assert.equal(await box.pause(), false)
  await box.connect()
})
test('kill ends a stream', async () => {
  const s = await Sandbox.create()
  const h = await s.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  assert.equal(await s.kill(), true)
  await throws(h.wait(), sdk.TimeoutError)
  assert.equal(await s.kill(), false)
  await throws(Sandbox.connect(s.sandboxId), sdk.NotFoundError)
})
test('metrics', async () => {
  const m = await box.getMetrics()
  assert(m.length > 0 && m[0].memTotal > 0 && m[0].cpuCount > 0)
})
test('snapshot and create from it', async () => {
  if (typeof box.createSnapshot !== 'function') return
  await box.files.write('/tmp/in-snapshot', 'yes')
  const snap = await box.createSnapshot()
  const s = await Sandbox.create(snap.snapshotId)
  try { assert.equal(await s.files.read('/tmp/in-snapshot'), 'yes') } finally { await s.kill() }
  assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), true)
})
test('a wrong key', async () => {
  await throws(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(50) }), sdk.AuthenticationError)
})
test('a wrong token', async () => {
  const r = await fetch(process.env.E2B_SANDBOX_URL + '/files?path=/etc/passwd', { headers: { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': 'ea_wrong' } })
  assert.equal(r.status, 401)
})
test('what there is not is said', async () => {
  await throws(Sandbox.create('no-such-template'), sdk.SandboxError, /not.found|404/i)
  await throws(Sandbox.create({ network: { allowOut: ['example.com'], denyOut: ['0.0.0.0/0'] } }), sdk.SandboxError, /more than this daemon/)
  await throws(Sandbox.create({ network: { maskRequestHost: 'x' } }), sdk.SandboxError, /does not support/)
})
test('no network by default', async () => {
  const r = await box.commands.run('getent hosts example.com || echo none')
  assert.equal(r.stdout, 'none\n')
})
test('kill', async () => {
  assert.equal(await Sandbox.kill(box.sandboxId), true)
  await throws(Sandbox.getInfo(box.sandboxId), sdk.NotFoundError)
})

const only = process.env.CASE && new RegExp(process.env.CASE)
for (const [name, f] of list) {
  if (only && name !== 'create' && !only.test(name)) continue
  const began = Date.now()
  let error
  try {
    await Promise.race([f(), sleep(30000, null, { ref: false }).then(() => { throw new Error('it took more than 30 s') })])
  } catch (e) { error = String(e?.stack ?? e) }
  console.log(JSON.stringify({ name, ms: Date.now() - began, error }))
  if (name === 'create' && error) break
}
process.exit(0)
