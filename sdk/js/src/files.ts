/** Files of a session's workspace. */

import type { Body, Query } from "./api.js";
import { type Content, collected, streamOf } from "./bytes.js";
import { ArgumentError, NotFoundError } from "./errors.js";
import type {
  ArchiveWritten,
  FileCopied,
  FileList,
  FileMatches,
  FilePatched,
  FileStat,
  FileWritten,
} from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { OfSession } from "./resource.js";
import { type Watch, begun } from "./watch.js";

const GIB = 1024 ** 3;

/** A version of a file: an operation fails unless the file is still in it. */
export interface Version {
  /** The `etag` of `stat`. */
  readonly ifMatch?: string | undefined;
}

/** How a file is written, as the API has it; `permissions` is a number, such as `0o755`. */
export interface WriteTerms extends Version, Omit<Query<"write_file">, "path" | "permissions"> {
  readonly permissions?: number | undefined;
  /** Only if there is no file. */
  readonly create?: boolean | undefined;
}

/** Which bytes of a file are read: `length` from `offset` on; a negative offset: the last ones. */
export interface Part {
  readonly offset?: number | undefined;
  readonly length?: number | undefined;
}

/**
 * File operations. Paths are relative to the workspace, or absolute below its path.
 *
 * At levels that allow any command, other files can be read, and files in /tmp written.
 */
export class Files extends OfSession {
  /** A file's content, or a part of it. Throws `LimitError` for more than `maxBytes`. */
  async read(
    path: string,
    { maxBytes = GIB, ...part }: Part & { readonly maxBytes?: number | undefined } = {},
    options?: CallOptions,
  ): Promise<Uint8Array> {
    const { pieces } = await this.#download(path, part, options);
    return await collected(pieces, maxBytes, path);
  }

  /** A file's content as text; invalid UTF-8 is replaced. */
  async readText(
    path: string,
    terms: Part & { readonly maxBytes?: number | undefined } = {},
    options?: CallOptions,
  ): Promise<string> {
    return new TextDecoder().decode(await this.read(path, terms, options));
  }

  /** A file's content, or a part of it, as it arrives. */
  async readStream(
    path: string,
    part: Part = {},
    options?: CallOptions,
  ): Promise<ReadableStream<Uint8Array>> {
    return streamOf((await this.#download(path, part, options)).pieces);
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
    { permissions, ifMatch, create, ...terms }: WriteTerms = {},
    options?: CallOptions,
  ): Promise<FileWritten> {
    const bits = permissions === undefined ? {} : { permissions: octal(permissions) };
    const query = { ...terms, path, ...bits };
    const given = { path: this.path, query };
    const headers = { ...onlyIf({ ifMatch }), ...(create && { "If-None-Match": "*" }) };
    return await this.api.upload("write_file", given, content, options, headers);
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

  /** Removes a file, a link, or an empty directory; with `recursive`, all that is in it, too. */
  async delete(
    path: string,
    { recursive, ...version }: Version & { readonly recursive?: boolean | undefined } = {},
    options?: CallOptions,
  ): Promise<void> {
    const given = { path: this.path, query: { path, recursive } };
    await this.api.callEngine("delete_file", given, options, onlyIf(version));
  }

  /** What is at a path; a link is not followed. */
  async stat(path: string, options?: CallOptions): Promise<FileStat> {
    return await this.api.call("stat_file", { path: this.path, query: { path } }, options);
  }

  /** Whether there is something at a path. */
  async exists(path: string, options?: CallOptions): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (error instanceof NotFoundError) return false;
      throw error;
    }
  }

  /** Copies a file or a directory. */
  async copy(
    source: string,
    destination: string,
    terms: Omit<Body<"copy_file">, "source" | "destination"> = {},
    options?: CallOptions,
  ): Promise<FileCopied> {
    const body = { ...terms, source, destination };
    return await this.api.callEngine("copy_file", { path: this.path, body }, options);
  }

  /** Sets the nine permission bits, such as `0o755`. */
  async chmod(path: string, permissions: number, options?: CallOptions): Promise<void> {
    const body = { path, permissions: octal(permissions) };
    await this.api.call("change_mode", { path: this.path, body }, options);
  }

  /** The lines of files that contain a text. */
  async search(
    text: string,
    terms: Omit<Query<"search_files">, "text"> = {},
    options?: CallOptions,
  ): Promise<FileMatches> {
    const given = { path: this.path, query: { ...terms, text } };
    return await this.api.callEngine("search_files", given, options);
  }

  /** Applies a unified diff, all of it or nothing. */
  async patch(
    patch: string,
    terms: Omit<Body<"patch_files">, "patch"> = {},
    options?: CallOptions,
  ): Promise<FilePatched> {
    const body = { ...terms, patch };
    return await this.api.callEngine("patch_files", { path: this.path, body }, options);
  }

  /**
   * Watches a directory; returns once the watch has begun.
   *
   * A change of the kind `overflow` tells that some are missing. Leaving the iteration ends it.
   */
  async watch(
    path = ".",
    terms: Omit<Query<"watch_files">, "path"> = {},
    options?: CallOptions,
  ): Promise<Watch> {
    const given = { path: this.path, query: { ...terms, path } };
    return await begun(this.api.events("watch_files", given, options));
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

  async #download(path: string, part: Part, options?: CallOptions) {
    const given = { path: this.path, query: { path } };
    const media = "application/octet-stream";
    return await this.api.download("read_file", given, options, media, range(part));
  }
}

function octal(permissions: number): string {
  return permissions.toString(8).padStart(4, "0");
}

function onlyIf({ ifMatch }: Version): Record<string, string> {
  return ifMatch === undefined ? {} : { "If-Match": `"${ifMatch}"` };
}

/** The header for a part of a file. */
function range({ offset = 0, length }: Part): Record<string, string> {
  if (length !== undefined && (length < 1 || offset < 0)) {
    throw new ArgumentError("length must be at least 1, and offset not negative with it");
  }
  if (offset < 0) return { Range: `bytes=${offset}` };
  if (!offset && length === undefined) return {};
  return { Range: `bytes=${offset}-${length === undefined ? "" : offset + length - 1}` };
}
