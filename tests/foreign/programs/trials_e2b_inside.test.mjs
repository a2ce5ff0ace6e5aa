// What E2B's SDK for JavaScript does inside a sandbox, and its code interpreter.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

// The SDKs are installed in the directory in which this runs.
const { resolve } = createRequire(pathToFileURL(`${process.cwd()}/`))
const load = (name) => import(pathToFileURL(resolve(name)))
const { Sandbox } = await load('@e2b/code-interpreter')
const {
  CommandExitError,
  FileType,
  InvalidArgumentError,
  NotFoundError,
  SandboxError,
  TimeoutError,
} = await load('e2b')

process.env.E2B_API_URL = `${process.env.PADDOCK_URL}/compat/e2b`
process.env.E2B_SANDBOX_URL = process.env.E2B_API_URL
process.env.E2B_API_KEY = process.env.PADDOCK_KEY

const metadata = { 'paddock.level': 'high' }
let box

before(async () => {
  box = await Sandbox.create({ timeoutMs: 600_000, metadata })
})
after(async () => {
  await box.kill()
})

const told = (events) => events.map((event) => [event.type, event.name])

async function until(found) {
  for (let turn = 0; turn < 1200; turn++) {
    const value = await found()
    if (value) return value
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  assert.fail('it did not happen')
}

async function folder(name) {
  await box.files.makeDir(name)
  return name
}

// Commands.

test('run', async () => {
  const done = await box.commands.run('echo out; echo err >&2; pwd')
  assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['out\n/home/user\n', 'err\n', 0])
})

test('run that fails', async () => {
  await assert.rejects(box.commands.run('echo before; exit 3'), (error) => {
    assert.ok(error instanceof CommandExitError)
    assert.deepEqual([error.exitCode, error.stdout], [3, 'before\n'])
    return true
  })
})

test('run with variables, and in a directory', async () => {
  const name = await folder('js-run')
  const done = await box.commands.run('echo $A; pwd', { envs: { A: 'b c' }, cwd: name })
  assert.equal(done.stdout, 'b c\n/home/user/js-run\n')
  await assert.rejects(box.commands.run('pwd', { cwd: '/nowhere' }), InvalidArgumentError)
})

test('run with a time-out', async () => {
  await assert.rejects(box.commands.run('sleep 60', { timeoutMs: 1000 }), TimeoutError)
})

test('output is told as it comes', async () => {
  const seen = []
  await box.commands.run('echo a; echo b >&2', {
    onStdout: (text) => seen.push(['out', text]),
    onStderr: (text) => seen.push(['err', text]),
  })
  assert.deepEqual(seen.sort(), [['err', 'b\n'], ['out', 'a\n']])
})

test('large output', async () => {
  const done = await box.commands.run("head -c 2000000 /dev/zero | tr '\\0' x")
  assert.equal(done.stdout.length, 2_000_000)
})

test('background, list, connect, kill', async () => {
  const running = await box.commands.run('sleep 60', { background: true })
  const found = (await box.commands.list()).filter((each) => each.pid === running.pid)
  assert.deepEqual(found.map((each) => each.args), [['-l', '-c', 'sleep 60']])
  await running.disconnect()
  const again = await box.commands.connect(running.pid)
  assert.equal(again.pid, running.pid)
  assert.equal(await box.commands.kill(running.pid), true)
  await assert.rejects(again.wait(), CommandExitError)
  assert.equal(await box.commands.kill(running.pid), false)
  await assert.rejects(box.commands.connect(999_999), NotFoundError)
})

test('standard input', async () => {
  const running = await box.commands.run('cat', { background: true, stdin: true })
  await box.commands.sendStdin(running.pid, 'one\n')
  await box.commands.closeStdin(running.pid)
  assert.equal((await running.wait()).stdout, 'one\n')
})

// Files.

test('write and read', async () => {
  const name = await folder('js-files')
  const info = await box.files.write(`${name}/deep/a.txt`, 'content äöü')
  assert.deepEqual([info.name, info.path], ['a.txt', `/home/user/${name}/deep/a.txt`])
  assert.equal(await box.files.read(info.path), 'content äöü')
  const bytes = await box.files.read(info.path, { format: 'bytes' })
  assert.equal(new TextDecoder().decode(bytes), 'content äöü')
  assert.equal(await (await box.files.read(info.path, { format: 'blob' })).text(), 'content äöü')
  const stream = await box.files.read(info.path, { format: 'stream' })
  assert.equal(await new Response(stream).text(), 'content äöü')
  await assert.rejects(box.files.read(`${name}/none`), NotFoundError)
  await assert.rejects(box.files.read(name), InvalidArgumentError)
})

test('write in each way', async () => {
  const name = await folder('js-ways')
  const data = new Uint8Array(1_000_000).map((_, at) => at % 251)
  for (const given of [data.buffer, new Blob([data]), new Response(data).body]) {
    await box.files.write(`${name}/a`, given)
    assert.deepEqual(await box.files.read(`${name}/a`, { format: 'bytes' }), data)
  }
  await box.files.write(`${name}/a`, 'packed', { gzip: true })
  assert.equal(await box.files.read(`${name}/a`, { gzip: true }), 'packed')
  const several = await box.files.write([
    { path: `${name}/b`, data: '1' },
    { path: `/home/user/${name}/c d`, data: '2' },
  ])
  assert.deepEqual(several.map((each) => each.name), ['b', 'c d'])
})

test('attributes', async () => {
  const name = await folder('js-attributes')
  await box.files.write(`${name}/a`, 'x', { metadata: { team: 'x' } })
  assert.deepEqual((await box.files.getInfo(`${name}/a`)).metadata, { team: 'x' })
})

test('info, list, exists, rename, remove', async () => {
  const name = await folder('js-tree')
  await box.files.write(`${name}/b/c`, '12345')
  await box.commands.run('ln -s b/c link', { cwd: name })
  const info = await box.files.getInfo(`${name}/b/c`)
  assert.deepEqual([info.type, info.size, info.permissions], [FileType.FILE, 5, '-rw-r--r--'])
  assert.ok(Math.abs(info.modifiedTime.getTime() - Date.now()) < 600_000)
  const link = await box.files.getInfo(`${name}/link`)
  assert.equal(link.symlinkTarget, `/home/user/${name}/b/c`)
  const listed = await box.files.list(name, { depth: 2 })
  assert.deepEqual(listed.map((each) => each.name), ['b', 'c', 'link'])
  await assert.rejects(box.files.list(name, { depth: 0 }), InvalidArgumentError)
  assert.equal(await box.files.exists(`${name}/b`), true)
  assert.equal(await box.files.makeDir(`${name}/b`), false)
  const moved = await box.files.rename(`${name}/b/c`, `${name}/new/d`)
  assert.equal(moved.path, `/home/user/${name}/new/d`)
  await box.files.remove(`${name}/new`)
  assert.equal(await box.files.exists(`${name}/new`), false)
})

test('signed addresses', async () => {
  await box.files.write('js-signed', 'content')
  const address = await box.downloadUrl('js-signed', { useSignatureExpiration: 60 })
  assert.equal(await (await fetch(address)).text(), 'content')
  const form = new FormData()
  form.append('file', new Blob(['uploaded']), 'js-uploaded')
  const answer = await fetch(await box.uploadUrl('js-uploaded'), { method: 'POST', body: form })
  assert.equal(answer.status, 200)
  assert.equal(await box.files.read('js-uploaded'), 'uploaded')
  const old = await box.downloadUrl('js-signed', { useSignatureExpiration: -10 })
  assert.equal((await fetch(old)).status, 401)
})

test('watch', async () => {
  const name = await folder('js-watch')
  const events = []
  const watch = await box.files.watchDir(name, (event) => events.push(event), { recursive: true })
  await box.files.write(`${name}/a`, 'x')
  await until(() => events.length >= 3)
  assert.deepEqual(told(events), [['create', 'a'], ['chmod', 'a'], ['write', 'a']])
  await box.files.remove(`${name}/a`)
  await until(() => events.length >= 4)
  assert.deepEqual(told(events).at(-1), ['remove', 'a'])
  await watch.stop()
})

// Terminals.

test('terminal', async () => {
  let seen = ''
  const decoder = new TextDecoder()
  const terminal = await box.pty.create({
    cols: 80,
    rows: 24,
    envs: { A: 'of-it' },
    onData: (data) => (seen += decoder.decode(data, { stream: true })),
  })
  const type = (text) => box.pty.sendInput(terminal.pid, new TextEncoder().encode(text))
  await type('echo $A; stty size\n')
  await until(() => seen.includes('of-it\r\n24 80\r\n'))
  await box.pty.resize(terminal.pid, { cols: 120, rows: 40 })
  await type('stty size\n')
  await until(() => seen.includes('40 120\r\n'))
  await type('exit 0\n')
  assert.equal((await terminal.wait()).exitCode, 0)
  assert.equal(await box.pty.kill(terminal.pid), false)
})

// The interpreter.

test('cells', async () => {
  const done = await box.runCode("import sys\nprint('out')\nprint('err', file=sys.stderr)\nx = 41; x")
  assert.deepEqual([done.text, done.logs.stdout, done.logs.stderr], ['41', ['out\n'], ['err\n']])
  assert.equal((await box.runCode('x + 1')).text, '42')
  const failed = await box.runCode('1/0')
  assert.equal(failed.error.name, 'ZeroDivisionError')
})

test('what a cell shows as it comes', async () => {
  const seen = []
  await box.runCode('print("a"); 1', {
    onStdout: (output) => seen.push(output.line),
    onResult: (result) => seen.push(result.text),
  })
  assert.deepEqual(seen, ['a\n', '1'])
})

test('variables of a cell', async () => {
  const done = await box.runCode("import os; os.environ['A']", { envs: { A: 'of it' } })
  assert.equal(done.text, 'of it')
})

test('contexts', async () => {
  const context = await box.createCodeContext({ cwd: '/tmp' })
  await box.runCode('own = 1', { context })
  assert.equal((await box.runCode('own', { context })).text, '1')
  assert.equal((await box.runCode('own')).error.name, 'NameError')
  await box.restartCodeContext(context)
  assert.equal((await box.runCode('own', { context })).error.name, 'NameError')
  await box.removeCodeContext(context)
  const left = await box.listCodeContexts()
  assert.ok(!left.some((each) => each.id === context.id))
})

test('a time-out interrupts the cell', async () => {
  await box.runCode('before = 1')
  await assert.rejects(
    box.runCode('import time; time.sleep(60)', { timeoutMs: 1000 }),
    TimeoutError,
  )
  assert.equal((await box.runCode('before')).text, '1')
})

// The sandbox.

test('a killed sandbox is not running', async () => {
  const other = await Sandbox.create({ timeoutMs: 600_000, metadata })
  assert.equal(await other.isRunning(), true)
  const running = await other.commands.run('sleep 60', { background: true })
  await other.kill()
  assert.equal(await other.isRunning(), false)
  await assert.rejects(running.wait(), SandboxError)
  await assert.rejects(other.commands.run('echo x'), SandboxError)
})
