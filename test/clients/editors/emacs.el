;;; emacs.el --- What a person does in Emacs with a client of Pi, step by step -*- lexical-binding: t; -*-

;; Run by ../editors.js with the client in the load path.  Each step is a line of JSON in the file that CLIENTS_STEPS
;; names: its name, and why it does not work.  CLIENTS_COMMAND is the program in Pi's place; CLIENTS_TOOL, CLIENTS_SLOW,
;; CLIENTS_MODEL and CLIENTS_PAST are what to say to it, and the name of a session that was there before.

(require 'ert)
(require 'cl-lib)
(require 'seq)
(require 'json)
(require 'pi-coding-agent)

(setq pi-coding-agent-executable (list (getenv "CLIENTS_COMMAND"))
      pi-coding-agent-quit-without-confirmation t)

(defconst clients-longest 25 "Seconds that something may take.")
(defvar clients-said nil "What was said to the person, the newest first.")
(defvar clients-chat nil "The buffer of the conversation.")

(advice-add 'message :before
            (lambda (form &rest args) (when form (push (ignore-errors (apply #'format-message form args)) clients-said))))
(advice-add 'display-warning :before
            (lambda (_type text &rest _) (push (format "warning: %s" text) clients-said)))

;;; Steps

(defun clients-tell (name &optional why)
  "Write down that the step NAME works, or WHY not."
  (let ((line (json-serialize (if why (list :name name :why why) (list :name name)))))
    (write-region (concat (decode-coding-string line 'utf-8) "\n") nil (getenv "CLIENTS_STEPS") t 'silent)))

(defmacro clients-step (name &rest body)
  "Take the step NAME, which is BODY.  What it signals is why it does not work."
  (declare (indent 1))
  `(condition-case err
       (progn ,@body (clients-tell ,name))
     (error (clients-tell ,name (car (split-string (error-message-string err) "\n"))))))

(defmacro clients-until (what &rest condition)
  "Wait until CONDITION is so, or signal that WHAT did not come."
  (declare (indent 1))
  `(let ((end (+ (float-time) clients-longest)))
     (while (not (progn ,@condition))
       (when (> (float-time) end) (error "%s did not come" ,what))
       (accept-process-output nil 0.02))))

(defun clients-must (condition sentence)
  "Signal SENTENCE unless CONDITION."
  (unless condition (error "%s" sentence)))

(defmacro clients-choosing (pattern &rest body)
  "Run BODY with a person who chooses the first of what is offered that fits PATTERN."
  (declare (indent 1))
  `(cl-letf (((symbol-function 'completing-read)
              (lambda (_prompt table &rest _)
                (or (seq-find (lambda (one) (string-match-p ,pattern one)) (all-completions "" table))
                    (error "None of %S is offered" ,pattern)))))
     ,@body))

;;; What can be seen

(defun clients-text () (with-current-buffer clients-chat (buffer-substring-no-properties (point-min) (point-max))))
(defun clients-shows (pattern) (string-match-p pattern (clients-text)))
(defun clients-heard (pattern) (seq-some (lambda (one) (and one (string-match-p pattern one))) clients-said))
(defun clients-state (key) (plist-get (buffer-local-value 'pi-coding-agent--state clients-chat) key))
(defun clients-last-words ()
  (let ((lines (split-string (clients-text) "\n" t)))
    (or (seq-find (lambda (line) (string-prefix-p "Error" line)) lines)
        (seq-find (lambda (line) (string-match-p "exited" line)) lines))))
(defun clients-dead () (not (process-live-p (buffer-local-value 'pi-coding-agent--process clients-chat))))
(defun clients-busy () (pi-coding-agent--session-busy-p clients-chat))
(defun clients-input () (buffer-local-value 'pi-coding-agent--input-buffer clients-chat))
(defun clients-here (command &rest args)
  (with-current-buffer clients-chat (apply command args)))

(defun clients-send (text)
  (setq clients-said nil)
  (with-current-buffer (clients-input)
    (erase-buffer)
    (insert text)
    (pi-coding-agent-send)))

(defun clients-prompt (text answer)
  "Send TEXT and wait for the end of a turn whose text fits ANSWER."
  (clients-send text)
  (clients-until (format "the answer to %S" text) (clients-shows answer))
  (clients-until "the end of the turn" (not (clients-busy))))

;;; A session, as a person goes through it

(defun clients-go (has-agent is-real)
  (clients-step "start"
    (pi-coding-agent)
    (setq clients-chat (seq-find (lambda (one) (eq (buffer-local-value 'major-mode one) 'pi-coding-agent-chat-mode))
                                 (buffer-list)))
    (clients-until "an answer" (or (clients-state :session-id) (clients-dead)))
    (when (clients-dead)
      (clients-until "the reason for its end" (clients-last-words))
      (error "the program ends: %s" (clients-last-words)))
    (clients-must (clients-state :model) "no model")
    (clients-must (not (clients-shows "No models available")) "it warns that there is no model"))
  (unless (clients-dead) (clients-go-on has-agent is-real)))

(defun clients-go-on (has-agent is-real)
  (when has-agent
    (clients-step "the client does not warn of its version"
      ;; Without a person in front of it the client does not ask.
      (clients-here #'pi-coding-agent--probe-process-version-async clients-chat)
      (clients-until "the version" (buffer-local-value 'pi-coding-agent--process-version clients-chat))
      (clients-must (not (clients-heard "older than the supported"))
                    (format "the client warns of %s" (buffer-local-value 'pi-coding-agent--process-version clients-chat)))))
  (let ((first (clients-state :session-file)) (forked nil))
    (if (not has-agent)
        (clients-step "a prompt is refused with a sentence"
          (clients-send "hello")
          (clients-until "a notice" (clients-heard "no model"))
          (clients-until "the prompt, back in the input"
            (equal (with-current-buffer (clients-input) (buffer-string)) "hello"))
          (clients-must (not (clients-busy)) "it is busy")
          (with-current-buffer (clients-input) (erase-buffer)))
      (clients-step "prompt" (clients-prompt "hello there" "\\(?:Heard\\|You said\\): hello there"))
      (clients-step "tool call" (clients-prompt (getenv "CLIENTS_TOOL") "\\(?:Heard\\|You said\\): \\(?:read a\\|tools\\)")
        (clients-must (clients-shows "^read ") "no call is shown"))
      (clients-step "abort"
        (clients-send (getenv "CLIENTS_SLOW"))
        (clients-until "the first piece" (clients-shows "0 1 2 "))
        (clients-here #'pi-coding-agent-abort)
        (clients-until "the end of the turn" (not (clients-busy)))
        (clients-must (clients-shows "\\[Aborted\\]") "it is not shown as aborted")))
    (clients-step "list of models, and another one"
      (let ((before (clients-state :model)))
        (clients-choosing (if has-agent (getenv "CLIENTS_MODEL") ".")
          (clients-here #'pi-coding-agent-select-model))
        (when has-agent
          (clients-until "another model" (not (equal before (clients-state :model)))))))
    (clients-step "thinking level"
      (setq clients-said nil)
      (clients-choosing "low" (clients-here #'pi-coding-agent-select-thinking))
      (clients-until "the level" (clients-heard "Thinking level: ")))
    (clients-step "name"
      (clients-here #'pi-coding-agent-set-session-name "A name")
      (clients-until "the name" (clients-heard "Session name set"))
      (when has-agent
        (clients-must (equal (plist-get (pi-coding-agent--session-metadata first) :session-name) "A name")
                      "the file has another name")))
    (when has-agent
      (clients-step "fork"
        (clients-choosing (getenv "CLIENTS_TOOL")
          (clients-here #'pi-coding-agent-fork)
          (clients-until "the fork" (not (equal first (clients-state :session-file)))))
        (clients-until "the history" (and (not (clients-busy)) (clients-shows "hello there")))
        (clients-must (equal (with-current-buffer (clients-input) (buffer-string)) (getenv "CLIENTS_TOOL"))
                      "the message is not in the input")
        (clients-must (not (clients-shows "Aborted")) "it shows what came later")
        (setq forked (clients-state :session-file))
        (clients-prompt "in the fork" "\\(?:Heard\\|You said\\): in the fork"))
      (clients-step "fork at point"
        (with-current-buffer clients-chat
          (goto-char (point-max))
          (cl-letf (((symbol-function 'y-or-n-p) #'always))
            (pi-coding-agent-fork-at-point)
            (clients-until "the fork" (not (equal forked (clients-state :session-file))))))
        (clients-until "the history" (and (not (clients-busy)) (not (clients-shows "in the fork"))))))
    (clients-step "new session"
      (let ((before (clients-state :session-file)))
        (setq clients-said nil)
        (clients-here #'pi-coding-agent-new-session)
        (clients-until "it" (clients-heard "New session started"))
        (clients-until "another session" (not (equal before (clients-state :session-file))))
        (clients-must (not (clients-shows "hello there")) "it shows the last one")
        (when has-agent (clients-prompt "in a new session" "\\(?:Heard\\|You said\\): in a new session"))))
    (clients-step "switch, to a session of another day"
      (clients-choosing (getenv "CLIENTS_PAST") (clients-here #'pi-coding-agent-resume-session)
        (clients-until "the history" (and (clients-shows "long ago") (not (clients-busy)))))
      (clients-must (clients-shows "an old answer") "the answer is not shown"))
    (when has-agent
      (clients-step "going on there" (clients-prompt "and again" "\\(?:Heard\\|You said\\): and again"))
      (clients-step "switch back"
        (clients-choosing "A name" (clients-here #'pi-coding-agent-resume-session)
          (clients-until "the history" (and (clients-shows "hello there") (not (clients-busy)))))
        (clients-prompt "back again" "\\(?:Heard\\|You said\\): back again"))
      (clients-step "copy of the last answer"
        (clients-here #'pi-coding-agent-copy-last-message)
        (clients-until "it" (and kill-ring (string-match-p "back again" (car kill-ring)))))
      (clients-step "queue while busy, steering"
        (clients-send (getenv "CLIENTS_SLOW"))
        (clients-until "the first piece" (buffer-local-value 'pi-coding-agent--assistant-header-shown clients-chat))
        (with-current-buffer (clients-input)
          (insert "turn left")
          (pi-coding-agent-queue-steering))
        (clients-until "it" (clients-heard "Steering message sent"))
        (accept-process-output nil 0.1)
        (clients-here #'pi-coding-agent-abort)
        (clients-until "the end of the turn" (not (clients-busy)))
        (clients-must (not (clients-heard "Steering failed")) "steering failed")))
    (clients-step "statistics"
      (setq clients-said nil)
      (clients-here #'pi-coding-agent-session-stats)
      (clients-until "them" (clients-heard "[0-9]")))
    (clients-step "HTML"
      (let ((file (expand-file-name "out.html")))
        (clients-here #'pi-coding-agent-export-html file)
        (clients-until "it" (clients-heard "Pi: Export"))
        (clients-must (file-exists-p file) "there is no file")))
    (when is-real
      (clients-step "compact"
        (setq clients-said nil)
        (clients-here #'pi-coding-agent-compact)
        ;; Pi itself has nothing to summarise in short sessions.
        (clients-until "the end of it"
          (or (clients-heard "[Nn]othing to compact\\|[Aa]lready compacted\\|too small") (clients-shows "Compaction")))
        (clients-until "rest" (not (clients-busy)))))
    (clients-step "reload, with another process"
      (let ((before (buffer-local-value 'pi-coding-agent--process clients-chat)))
        (setq clients-said nil)
        (clients-here #'pi-coding-agent-reload)
        (clients-until "it" (clients-heard "Session reloaded"))
        (clients-until "rest" (not (clients-busy)))
        (clients-must (not (process-live-p before)) "the first one lives")
        (clients-must (clients-shows (if has-agent "hello there" "long ago")) "the history is not shown")
        (when has-agent (clients-prompt "after the reload" "\\(?:Heard\\|You said\\): after the reload"))))
    (clients-step "quit"
      (let ((process (buffer-local-value 'pi-coding-agent--process clients-chat)))
        (clients-here #'pi-coding-agent-quit)
        (clients-until "the end of the process" (not (process-live-p process)))))))

;;; The client's own tests

(defun clients-own-tests (pattern)
  "Run the client's own tests whose names fit PATTERN, with the program in Pi's place."
  (setq pi-coding-agent-test-integration-timeout clients-longest)
  ;; They take the end of a turn for the last that comes, and later versions of Pi say in the same breath that they have
  ;; settled, which the client does not heed.
  (advice-add 'pi-coding-agent--handle-event :before-while
              (lambda (_process event) (not (equal (plist-get event :type) "agent_settled"))))
  (dolist (test (ert-select-tests (concat "^pi-coding-agent-integration-" pattern ".*/real$") t))
    (let ((result (ert-run-test test))
          (name (replace-regexp-in-string "\\`pi-coding-agent-integration-\\|/real\\'" ""
                                          (symbol-name (ert-test-name test)))))
      (cond
       ((ert-test-passed-p result) (clients-tell name))
       ((ert-test-skipped-p result))
       (t (clients-tell name (car (split-string (format "%S" (ert-test-result-with-condition-condition result)) "\n"))))))))

;;; emacs.el ends here
