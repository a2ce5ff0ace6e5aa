/** Files of a session's workspace. */

import type { Query } from "./api.js";
import { type Content, collected, streamOf } from "./bytes.js";
import type { ArchiveWritten, FileList, FileWritten } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { OfSession } from "./resource.js";

const GIB = 1024 ** 3;

/** How a file is written, as the API has it; `permissions` is a number, such as `0o755`. */
export interface WriteTerms extends Omit<Query<"write_file">, "path" | "permissions"> {
  readonly permissions?: number | undefined;
}

/**
 * File operations. Paths are relative to the workspace, or absolute below /workspace.
 *
 * At levels that allow any command, other files can be read, and files in /tmp written.
 */
export class Files extends OfSession {
  /** A file's content. Throws `LimitError` if it has more than `maxBytes`. */
  async read(path: string, { maxBytes = GIB } = {}, options?: CallOptions): Promise<Uint8Array> {
    const { pieces } = await this.#download(path, options);
    return await collected(pieces, maxBytes, path);
  }

  /** A file's content as text; invalid UTF-8 is replaced. */
  async readText(path: string, limit?: { maxBytes?: number }, options?: CallOptions) {
    return new TextDecoder().decode(await this.read(path, limit, options));
  }

  /** A file's content as it arrives. */
  async readStream(path: string, options?: CallOptions): Promise<ReadableStream<Uint8Array>> {
    return streamOf((await this.#download(path, options)).pieces);
  }

  /**
   * Writes a file, completely or not at all.
   *
   * An existing file is replaced, and keeps its mode unless `permissions` are given; `mode:
   * "append"` adds to it. Directories must exist, unless `parents` creates them.
   */
  async write(
    path: string,
    content: Content,
    { permissions, ...terms }: WriteTerms = {},
    options?: CallOptions,
  ): Promise<FileWritten> {
    const octal = permissions?.toString(8).padStart(4, "0");
    const query = { ...terms, path, ...(octal && { permissions: octal }) };
    const given = { path: this.path, query };
    return await this.api.upload("write_file", given, content, options);
  }

  /** Appends to a file, or creates it. */
  async append(path: string, content: Content, terms: WriteTerms = {}, options?: CallOptions) {
    return await this.write(path, content, { ...terms, mode: "append" }, options);
  }

  /** The content of a directory, 1 to 64 levels deep; links are not followed. */
  async list(
    path = ".",
    terms: Omit<Query<"list_files">, "path"> = {},
    options?: CallOptions,
  ): Promise<FileList> {
    const given = { path: this.path, query: { path, ...terms } };
    return await this.api.call("list_files", given, options);
  }

  /** Creates a directory and its parents; an existing one is no error. */
  async mkdir(path: string, options?: CallOptions): Promise<void> {
    await this.api.call("make_directory", { path: this.path, body: { path } }, options);
  }

  /** Creates a symbolic link to `target`, which is relative to the link and in the workspace. */
  async symlink(path: string, target: string, options?: CallOptions): Promise<void> {
    await this.api.call("make_link", { path: this.path, body: { path, target } }, options);
  }

  /** Renames a file or directory; replaces a file at the destination. */
  async move(source: string, destination: string, options?: CallOptions): Promise<void> {
    const body = { source, destination };
    await this.api.call("move_file", { path: this.path, body }, options);
  }

  /** Removes a file, a link, or an empty directory. */
  async delete(path: string, options?: CallOptions): Promise<void> {
    await this.api.call("delete_file", { path: this.path, query: { path } }, options);
  }

  /** A directory's content as one archive, as it arrives: `tar` unless another `format` is given. */
  async readArchive(
    path = ".",
    terms: Omit<Query<"read_archive">, "path"> = {},
    options?: CallOptions,
  ): Promise<ReadableStream<Uint8Array>> {
    const given = { path: this.path, query: { path, ...terms } };
    return streamOf((await this.api.download("read_archive", given, options)).pieces);
  }

  /** Unpacks an archive into a directory; existing files are replaced, others stay. */
  async writeArchive(
    archive: Content,
    path = ".",
    terms: Omit<Query<"write_archive">, "path"> = {},
    options?: CallOptions,
  ): Promise<ArchiveWritten> {
    const given = { path: this.path, query: { path, ...terms } };
    return await this.api.upload("write_archive", given, archive, options);
  }

  async #download(path: string, options?: CallOptions) {
    return await this.api.download("read_file", { path: this.path, query: { path } }, options);
  }
}
