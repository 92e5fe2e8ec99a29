;;; client.el --- A client of pi-session-server on jsonrpc.el  -*- lexical-binding: t; -*-

;; Copy what is above "the demonstration". `emacs -Q --batch -l client.el' runs that.

(require 'jsonrpc)

(defun pi-sessions-start (options on-event on-hook)
  "Start the server with OPTIONS, a list of strings, and return the connection.
ON-EVENT is called with the name and the params of each event.  ON-HOOK is
called with those of each question of the server; it returns nil to allow the
action, or (:cancel t) to stop it."
  (let ((program (or (getenv "PI_SESSION_SERVER") "pi-session-server")))
    (unless (executable-find program) (error "The server cannot be started: there is no program %s" program))
    (make-instance
     'jsonrpc-process-connection
     :name "pi-sessions"
     :process (lambda ()
                (make-process
                 :name "pi-sessions"
                 :command `(,program "--framing" "headers" "--dialect" "jsonrpc" ,@options)
                 :connection-type 'pipe
                 :coding 'utf-8-emacs-unix
                 :noquery t
                 ;; The name by which jsonrpc.el finds it.  Without it, complaints would mix with replies.
                 :stderr (get-buffer-create "*pi-sessions stderr*")))
     :notification-dispatcher (lambda (_ name params) (funcall on-event name params))
     :request-dispatcher (lambda (_ name params) (funcall on-hook name params)))))

(define-error 'pi-sessions-failure "A request to pi-session-server failed")

(defun pi-sessions-call (connection name &rest params)
  "Request NAME with PARAMS, a plist, over CONNECTION and return the result.
Signal `pi-sessions-failure' with the message, the failure's name, which is nil
if the server is gone, and its code."
  ;; Not by `jsonrpc-request': older ones leave events that came together with the reply until there is more output.
  (let (reply)
    (jsonrpc-async-request
     connection name
     (or params (make-hash-table)) ; The server wants an object, and nil would become null.
     :success-fn (lambda (result) (setq reply (list :result result)))
     :error-fn (lambda (failure) (setq reply (list :failure failure)))
     :timeout-fn (lambda () (setq reply '(:failure (:message "The server has not answered within 60 s"))))
     :timeout 60)
    (while (not reply) (accept-process-output nil 1))
    (let ((failure (plist-get reply :failure)))
      (when failure
        (signal 'pi-sessions-failure (list (if (jsonrpc-running-p connection) (plist-get failure :message)
                                             (format "the server ended before it answered %s" name))
                                           (plist-get (plist-get failure :data) :name)
                                           (plist-get failure :code))))
      (plist-get reply :result))))

(defun pi-sessions-close (connection)
  "Let the server of CONNECTION finish all that was sent.  Return its exit status."
  (pi-sessions-call connection :shutdown)
  (jsonrpc-notify connection :exit (make-hash-table))
  ;; `jsonrpc-shutdown' does not wait: it kills the process.
  (let ((process (jsonrpc--process connection)))
    (while (process-live-p process) (accept-process-output process 1))
    (process-exit-status process)))

;;; The demonstration: prints the lines that README.md shows

(defun say (format &rest values)
  "Print VALUES by FORMAT on stdout."
  (princ (concat (apply #'format format values) "\n")))

(defun entry (role content)
  "Return an entry with CONTENT, said by ROLE."
  `(:type "message" :message (:role ,role :content ,content)))

(defun text-of (message)
  "Return the text of MESSAGE, whose content is a string or a vector of blocks."
  (let ((content (plist-get message :content)))
    (if (stringp content) content
      (mapconcat (lambda (block) (plist-get block :text)) content ""))))

(defun demonstrate (folder)
  "Talk to a server that keeps its sessions in FOLDER."
  (let* ((events nil)
         (server (pi-sessions-start
                  (list "--session-dir" folder)
                  (lambda (name _) (push (symbol-name name) events))
                  (lambda (name _) (say "hook: %s" name) nil)))
         (call (lambda (name &rest params) (apply #'pi-sessions-call server name params)))
         (info (funcall call :initialize :capabilities '(:hooks [(:name "session_before_fork")])))
         (question "Grüße, 世界 🌍! Name a colour.")
         (entries (vector (entry "user" question) (entry "assistant" [(:type "text" :text "Blue.")])))
         (append-turn (lambda () (funcall call :append :entries entries :idempotencyKey "turn-1")))
         appended)
    (say "server: %s, protocol %d" (plist-get (plist-get info :serverInfo) :name) (plist-get info :protocolVersion))

    (setq appended (funcall append-turn))
    (say "append: %d entries" (length (plist-get appended :entryIds)))
    (say "append with the same key: %s entries" (if (equal (funcall append-turn) appended) "the same" "other"))
    (mapc (lambda (message) (say "%s: %s" (plist-get message :role) (text-of message)))
          (plist-get (funcall call :get_messages) :messages))

    (let ((fork (funcall call :fork :entryId (aref (plist-get appended :entryIds) 0))))
      (say "fork before: %s" (plist-get fork :text)))
    (funcall call :append :entries (vector (entry "user" (make-string 700000 ?é))) :idempotencyKey "turn-2")
    (let ((messages (plist-get (funcall call :get_messages) :messages)))
      (say "long message: %d characters" (length (text-of (aref messages 0)))))
    (condition-case err
        (funcall call :get_entry :entryId "ffffffff")
      (pi-sessions-failure (say "failure: %s (%s)" (nth 2 err) (nth 3 err))))

    (let ((status (pi-sessions-close server)))
      (say "events: %s" (mapconcat #'identity (reverse events) " "))
      (say "exit status: %d" status)
      status)))

(when noninteractive
  (let ((folder (make-temp-file "pi-session-server-" t)))
    (kill-emacs
     (unwind-protect
         (condition-case err
             (demonstrate folder)
           (error (message "%s" (error-message-string err)) 1))
       (delete-directory folder t)))))

;;; client.el ends here
