/** Requests that wait for their answers: by id, with limits of time. */

/** A limit of time for an answer. */
export interface AnswerLimit {
  /** Milliseconds until {@link expire} is called. */
  readonly within: number;
  /** Ends the wait, unless another event does. */
  expire(): void;
}

interface WaitingRequest<Answer> {
  /** The name of the request, for answers without an id. */
  readonly name: string;
  resolve(answer: Answer): void;
  reject(error: Error): void;
  readonly timer: NodeJS.Timeout | undefined;
}

export class PendingRequests<Id, Answer> {
  private readonly waiting = new Map<Id, WaitingRequest<Answer>>();

  /** Waits for the answer to a request, which the caller then sends. */
  wait(id: Id, name: string, limit?: AnswerLimit): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const timer = limit && setTimeout(() => limit.expire(), limit.within);
      timer?.unref();
      this.waiting.set(id, { name, resolve, reject, timer });
    });
  }

  /** The ids of the waiting requests. */
  get ids(): readonly Id[] {
    return [...this.waiting.keys()];
  }

  /** Returns the id of the oldest waiting request of a name. */
  findByName(name: string | undefined): Id | undefined {
    for (const [id, request] of this.waiting) if (request.name === name) return id;
    return undefined;
  }

  /** Resolves a request. An id that is not waited for is ignored: the answer may be late. */
  resolve(id: Id, answer: Answer): void {
    this.take(id)?.resolve(answer);
  }

  /** Rejects a request, if it waits. */
  reject(id: Id, error: Error): void {
    this.take(id)?.reject(error);
  }

  resolveAll(answer: Answer): void {
    for (const id of this.waiting.keys()) this.resolve(id, answer);
  }

  rejectAll(error: Error): void {
    for (const id of this.waiting.keys()) this.reject(id, error);
  }

  private take(id: Id): WaitingRequest<Answer> | undefined {
    const request = this.waiting.get(id);
    this.waiting.delete(id);
    clearTimeout(request?.timer);
    return request;
  }
}
